"""When does attention over the spectrum help? When a filter depends on all eigenvalues together.

There are many graphs of different sizes, each with a random signal and its filtered version. One
model learns the filter from some graphs and is tested on others. A model that looks at each
eigenvalue alone can learn ``heat``. The other three filters depend on where an eigenvalue lies
among all eigenvalues *of the same graph*, for example whether it is the largest.

    python examples/attention_over_spectra.py 3  # number of seeds, one by default
"""

from __future__ import annotations

import sys

import networkx as nx
import torch

import specformer as sf

GRAPHS, TESTED, EPOCHS = 60, 30, 20
#: Filters: sorted eigenvalues of a graph in, responses in [0, 1] out.
FILTERS = {
    "heat": lambda values: torch.exp(-3 * values),
    "second": lambda values: torch.exp(-(((values - values[1]) / 0.05) ** 2)),
    "half": lambda values: torch.sigmoid((values.median() - values) / 0.05),
    "largest": lambda values: torch.exp(-5 * (values[-1] - values)),
}


def drawn(seed: int) -> list[sf.Spectrum]:
    """Spectra of connected random graphs of 15 to 60 nodes, sparse and dense, clustered or not."""
    torch.manual_seed(seed)
    spectra = []
    while len(spectra) < GRAPHS + TESTED:
        n, kind = int(torch.randint(15, 60, ())), len(spectra) % 3
        number = int(torch.randint(10**6, ()))
        if kind == 0:
            graph = nx.gnp_random_graph(n, float(torch.rand(()) * 0.3 + 0.08), seed=number)
        elif kind == 1:
            graph = nx.watts_strogatz_graph(n, 4, float(torch.rand(())) * 0.3, seed=number)
        else:
            graph = nx.random_partition_graph([n // 2, n - n // 2], 0.4, 0.03, seed=number)
        if nx.is_connected(graph):
            spectra.append(sf.decompose(graph))
    return spectra


def error(name: str, spectra: list[sf.Spectrum], seed: int, **options: bool) -> float:
    """Train; the squared error on new graphs, as a share of the signal's energy there."""
    torch.manual_seed(seed)
    response = FILTERS[name]
    signals = [torch.randn(spectrum.num_nodes, 8) for spectrum in spectra]
    wanted = [
        spectrum.filter(x, response(spectrum.eigenvalues))
        for spectrum, x in zip(spectra, signals, strict=True)
    ]
    filt = sf.SpectralFilter(32, num_heads=4, num_blocks=2, **options)
    weights = torch.nn.Linear(4, 1)
    parameters = [*filt.parameters(), *weights.parameters()]
    optimiser = torch.optim.Adam(parameters, lr=0.003)
    rate = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, EPOCHS)

    def loss(number: int) -> torch.Tensor:
        spectrum = spectra[number]
        learned = weights(filt(spectrum.eigenvalues)).squeeze(-1)
        return (spectrum.filter(signals[number], learned) - wanted[number]).square().mean()

    for _ in range(EPOCHS):
        for batch in torch.randperm(GRAPHS).split(4):
            optimiser.zero_grad()
            sum(loss(int(number)) for number in batch).backward()
            optimiser.step()
        rate.step()
    tested = range(GRAPHS, len(spectra))
    with torch.no_grad():
        lost = sum(float(loss(number)) for number in tested)
    return lost / sum(float(wanted[number].square().mean()) for number in tested)


def main() -> None:
    """Print the errors with attention, without it, and without the encoding."""
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 1
    kinds = {
        "whole": {},
        "without attention": {"attention": False},
        "λ alone": {"attention": False, "encoding": False},
    }
    spectra = [drawn(seed) for seed in range(seeds)]
    print("filter", *kinds, sep="\t")
    for name in FILTERS:
        found = []
        for options in kinds.values():
            each = [error(name, own, seed, **options) for seed, own in enumerate(spectra)]
            found.append(sum(each) / seeds)
        print(name, *(f"{value:.4f}" for value in found), sep="\t", flush=True)


if __name__ == "__main__":
    main()
