# SPDX-License-Identifier: Apache-2.0
"""Models of the families in families.json, with random weights, and inputs for these models."""

import json
from pathlib import Path

import torch
import transformers

HERE = Path(__file__).resolve().parent
FAMILIES = json.loads((HERE / "families.json").read_text())["families"]
BYPASSING = ("Falcon", "Bloom", "MPT")  # families that do not use the attention function of transformers
FIRST_TOKEN = 3                         # smaller numbers are tokens with a meaning of their own


def is_decoder(family):
    return FAMILIES[family]["kind"] == "decoder"


def packs(family):
    """Returns whether position_ids tell transformers, for this family, where the sequences of a packed row begin."""
    return is_decoder(family) and family not in ("Bloom", "MPT", "GPT-OSS")


def config_of(family, size="small"):
    entry = FAMILIES[family]
    model = getattr(transformers, entry["model"])
    config = getattr(transformers, entry["config"]) if "config" in entry else model.config_class
    return config(**{**entry["small"], **(entry["large"] if size == "large" else {})})


def model_of(family, implementation, size="small", seed=1, **changes):
    """Returns a model in evaluation mode. The weights do not depend on the implementation."""
    torch.manual_seed(seed)
    config = config_of(family, size)
    for name, value in changes.items():
        setattr(config, name, value)
    config._attn_implementation = implementation
    model = getattr(transformers, FAMILIES[family]["model"])(config).eval()
    if getattr(model, "generation_config", None) is not None:
        model.generation_config.eos_token_id = None  # no token ends a generation early
        model.generation_config.pad_token_id = 0
    return model


def tokens(batch, length, vocabulary, seed=2):
    return torch.randint(FIRST_TOKEN, vocabulary, (batch, length), generator=torch.Generator().manual_seed(seed))


def left_padding(batch, length):
    """Returns which tokens of a batch are not padding. Row b begins with 5 * b tokens of padding."""
    return (torch.arange(length) >= 5 * torch.arange(batch)[:, None]).long()


def inputs_of(family, batch=2, length=48, padded=False, size="small"):
    """Returns the arguments of a model's forward."""
    config, kind = config_of(family, size), FAMILIES[family]["kind"]
    vocabulary = config.vocab_size
    padding = {"attention_mask": left_padding(batch, length)} if padded else {}
    if kind == "speech":
        frames = 2 * config.max_source_positions
        sound = torch.randn(batch, config.num_mel_bins, frames, generator=torch.Generator().manual_seed(3))
        return {"input_features": sound, "decoder_input_ids": tokens(batch, length, vocabulary)}
    both = {"input_ids": tokens(batch, length, vocabulary), **padding}
    if kind == "encoder-decoder":
        both["decoder_input_ids"] = tokens(batch, length // 2, vocabulary, seed=4)
    return both


def packed_inputs(family, lengths):
    """Returns the inputs of one packed row of sequences of the given lengths, and each sequence as a row of its own."""
    row = tokens(1, sum(lengths), config_of(family).vocab_size)
    positions = torch.cat([torch.arange(length) for length in lengths])[None]
    return {"input_ids": row, "position_ids": positions, "use_cache": False}, row.split(lengths, dim=1)


def logits_of(model, inputs):
    """Returns the logits of all tokens that are not padding. These tokens do not see the padding."""
    with torch.no_grad():
        logits = model(**inputs).logits
    kept = inputs.get("attention_mask")
    return logits if kept is None or kept.shape[1] != logits.shape[1] else logits[kept.bool()]
