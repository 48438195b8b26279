"""How the mini family was made: corpus, tokenizer, pretraining, unlooping, distillation, evaluation."""
