"""Hugging Face tokenizers alone, on one core: `encode_batch_fast`, which omits the positions of tokens in their
text."""
import worker


class Peer:
    def __init__(self, material, variant, lanes, threads):
        from tokenizers import Tokenizer
        self.tokenizer = Tokenizer.from_file(str(material / "model/tokenizer.json"))
        self.tokenizer.no_padding()
        self.tokenizer.enable_truncation(256)

    def tokenize(self, texts):
        return sum(map(len, self.tokenizer.encode_batch_fast(texts)))


if __name__ == "__main__":
    worker.main(Peer)
