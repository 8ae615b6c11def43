"""MiniLM in Flax is BERT's equations on the package's weights, and the example runs with it."""

from math import erf
from pathlib import Path

import numpy as np
import pytest

from examples.adapters import main, missing
from examples.minilm import EPSILON, HEADS, LAYERS, Encoder, folder, pretrained, sentence, tokens_of
from tests.conftest import rarely

pytestmark = pytest.mark.skipif(
    missing() is not None, reason=f"the example needs packages: {missing()}"
)
TEXTS = ["A judge rules on copyright.", "Sunderland draw at home", "Shares rise"]


def where() -> Path:
    found = folder()
    assert found
    return found


def of_file(held: dict[str, np.ndarray], tokens: list[int], layers: int) -> np.ndarray:
    """The sentence vector of one text's tokens, by loops, from the file of weights itself."""

    def dense(name: str, x: np.ndarray) -> np.ndarray:
        return x @ held[f"{name}.weight"].T.astype(float) + held[f"{name}.bias"]

    def norm(name: str, x: np.ndarray) -> np.ndarray:
        centred = x - x.mean(axis=1, keepdims=True)
        scaled = centred / np.sqrt((centred**2).mean(axis=1, keepdims=True) + EPSILON)
        return scaled * held[f"{name}.weight"] + held[f"{name}.bias"]

    def embedded(name: str, rows: list[int]) -> np.ndarray:
        return held[f"embeddings.{name}_embeddings.weight"][rows].astype(float)

    numbers = list(range(len(tokens)))
    x = embedded("word", tokens) + embedded("position", numbers) + embedded("token_type", [0])
    x = norm("embeddings.LayerNorm", x)
    for k in range(layers):
        layer = f"encoder.layer.{k}"
        q, key, v = (dense(f"{layer}.attention.self.{one}", x) for one in ("query", "key", "value"))
        size, parts = q.shape[1] // HEADS, []
        for h in range(HEADS):
            own = slice(h * size, (h + 1) * size)
            scores = np.exp(q[:, own] @ key[:, own].T / size**0.5)
            parts.append(scores / scores.sum(axis=1, keepdims=True) @ v[:, own])
        seen = dense(f"{layer}.attention.output.dense", np.concatenate(parts, axis=1))
        x = norm(f"{layer}.attention.output.LayerNorm", x + seen)
        inner = dense(f"{layer}.intermediate.dense", x)
        inner = inner * (1 + np.vectorize(erf)(inner / 2**0.5)) / 2
        x = norm(f"{layer}.output.LayerNorm", x + dense(f"{layer}.output.dense", inner))
    mean = x.mean(axis=0)
    found: np.ndarray = mean / np.linalg.norm(mean)
    return found


@pytest.mark.parametrize("layers", [1, rarely(LAYERS)])
def test_the_encoder_gives_what_the_equations_give_of_the_file_of_weights(layers: int) -> None:
    from safetensors.numpy import load_file

    held = load_file(where() / "model.safetensors")
    tokens = tokens_of(TEXTS, where(), 10)
    vectors = Encoder(layers).apply({"params": pretrained(where(), layers)}, tokens)
    found = sentence(vectors, tokens)
    for row, text in zip(found, tokens.tolist(), strict=True):
        real = [token for token in text if token]
        np.testing.assert_allclose(row, of_file(held, real, layers), atol=1e-5)


def test_tokens_are_those_of_the_vocabulary() -> None:
    words = (where() / "vocab.txt").read_text(encoding="utf-8").split("\n")
    (row,) = tokens_of(["Sunderland draw at home unaffordably"], where(), 8).tolist()
    said = [words[token] for token in row]
    assert said == ["[CLS]", "sunderland", "draw", "at", "home", "una", "##ff", "[SEP]"]


@pytest.mark.thorough
def test_the_example_prints_a_score_for_each_client(capsys: pytest.CaptureFixture[str]) -> None:
    result = main(n_clients=5, layers=1, rounds=1)
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == 3 + 5 and result.models.shape == (5, 2 * 8 * 2 * 384 + 5 * 385)
    assert np.isfinite(result.scores).all()
