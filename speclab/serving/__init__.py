"""What serving engines (vLLM, SGLang, llama.cpp) can take from speclab, and what they write that it can open."""
