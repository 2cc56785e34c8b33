"""Make a tiny model with random weights: `make_model.py gguf|hf OUT`; run by the Python that has the engine.

Its answers are noise, and end at their token limit. The vocabulary is trained on the licences and the Python library of
this machine, so that prompts have about as many tokens as elsewhere. The GGUF answers with letters and spaces only:
llama.cpp rejects answers that begin like a tool call and are none.
"""

from __future__ import annotations

import json
import sys
import sysconfig
from pathlib import Path
from typing import Any

VOCABULARY, CONTEXT = 8192, 32768
LAYERS, WIDTH, HEADS, KV_HEADS, HEAD_WIDTH, HIDDEN = 2, 256, 4, 1, 64, 768
SPECIAL = ("<|end|>", "<|start|>", "<|stop|>")
END, STOP = 0, 2
_SPACE = "Ġ"  # how a byte-level vocabulary writes a space
TEMPLATE = (
    "{%- if tools %}{{- '<|start|>tools\\n' + (tools | tojson) + '<|stop|>\\n' }}{%- endif %}"
    "{%- for message in messages %}{{- '<|start|>' + message.role + '\\n' + (message.content or '') }}"
    "{%- if message.tool_calls %}{{- message.tool_calls | tojson }}{%- endif %}{{- '<|stop|>\\n' }}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|start|>assistant\\n' }}{%- endif %}"
)


def train_tokenizer() -> Any:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    library = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))[:100]
    files = [str(path) for path in (*sorted(Path("/usr/share/common-licenses").glob("*")), *library) if path.is_file()]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY, special_tokens=list(SPECIAL), initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train(files, trainer)
    assert tokenizer.get_vocab_size() == VOCABULARY
    return tokenizer


def write_gguf(path: Path) -> None:
    import gguf
    import numpy as np

    chance = np.random.default_rng(0)
    tokenizer = train_tokenizer()
    tokens = [token for token, _ in sorted(tokenizer.get_vocab().items(), key=lambda pair: pair[1])]
    pairs = json.loads(tokenizer.to_str())["model"]["merges"]
    merges = [pair if isinstance(pair, str) else " ".join(pair) for pair in pairs]
    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_name("tiny")
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(HIDDEN)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_rope_dimension_count(HEAD_WIDTH)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    kinds = gguf.TokenType
    writer.add_token_types([kinds.CONTROL if token in SPECIAL else kinds.NORMAL for token in tokens])
    writer.add_token_merges(merges)
    writer.add_eos_token_id(STOP)
    writer.add_eot_token_id(STOP)
    writer.add_pad_token_id(END)
    writer.add_add_bos_token(False)
    writer.add_chat_template(TEMPLATE)

    def add(name: str, *shape: int) -> None:
        matrix = len(shape) > 1
        values = chance.standard_normal(shape) * 0.02 if matrix else np.ones(shape)
        # The first channel is the same for all tokens, so that its weight in the head is a bias of the logits.
        if name == "token_embd":
            values[:, 0] = 1.0
        if name == "output":
            words = [token.removeprefix(_SPACE) for token in tokens]
            values[:, 0] = [0.0 if word.isascii() and word.isalpha() else -3.0 for word in words]
        writer.add_tensor(f"{name}.weight", values.astype(np.float16 if matrix else np.float32))

    add("token_embd", VOCABULARY, WIDTH)
    add("output", VOCABULARY, WIDTH)
    add("output_norm", WIDTH)
    for layer in range(LAYERS):
        block = f"blk.{layer}"
        add(f"{block}.attn_norm", WIDTH)
        add(f"{block}.attn_q", HEADS * HEAD_WIDTH, WIDTH)
        add(f"{block}.attn_k", KV_HEADS * HEAD_WIDTH, WIDTH)
        add(f"{block}.attn_v", KV_HEADS * HEAD_WIDTH, WIDTH)
        add(f"{block}.attn_output", WIDTH, HEADS * HEAD_WIDTH)
        add(f"{block}.ffn_norm", WIDTH)
        add(f"{block}.ffn_gate", HIDDEN, WIDTH)
        add(f"{block}.ffn_up", HIDDEN, WIDTH)
        add(f"{block}.ffn_down", WIDTH, HIDDEN)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_hf(folder: Path) -> None:
    """Write configuration and tokenizer; the server makes the weights itself (`--load-format dummy`)."""
    folder.mkdir(parents=True, exist_ok=True)
    train_tokenizer().save(str(folder / "tokenizer.json"))
    names = {"eos_token": SPECIAL[STOP], "pad_token": SPECIAL[END]}
    tokenizer = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": CONTEXT, "chat_template": TEMPLATE}
    (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer | names))
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": VOCABULARY,
        "hidden_size": WIDTH, "intermediate_size": HIDDEN, "num_hidden_layers": LAYERS, "head_dim": HEAD_WIDTH,
        "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS, "max_position_embeddings": CONTEXT,
        "eos_token_id": STOP, "pad_token_id": END, "tie_word_embeddings": False, "dtype": "float32",
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))


if __name__ == "__main__":
    (write_gguf if sys.argv[1] == "gguf" else write_hf)(Path(sys.argv[2]))
