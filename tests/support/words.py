"""A tokenizer of few words, for pairs that have none."""

from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from transformers import PreTrainedTokenizerFast


def word_tokenizer(count):
    """Its words are w0, w1 and so on, by their ids; any other word is w0."""
    words = Tokenizer(WordLevel({f"w{i}": i for i in range(count)}, unk_token="w0"))
    words.pre_tokenizer = WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=words)
