"""Learn from many small graphs in PyG's format: GraphSpecformer in a plain PyTorch loop.

The target is the number of bonds per atom of a random graph. The features of the atoms do not tell
it, so the model must learn it from the spectra and the bonds.
"""

import torch
from torch_geometric.data import Data
from torch_geometric.utils import erdos_renyi_graph

import specformer as sf
from specformer.datasets import Batches, GraphStore
from specformer.graphs import graph_set_from_pyg
from specformer.spectrum import decompose_many

torch.manual_seed(0)
molecules = []
for _ in range(300):
    n = int(torch.randint(4, 12, ()))
    bonds = erdos_renyi_graph(n, 0.4)
    kinds = torch.randint(0, 2, (n, n)).triu()[bonds[0].minimum(bonds[1]), bonds.amax(dim=0)]
    target = torch.tensor([bonds.shape[1] / n])
    atoms = torch.zeros(n, 1, dtype=torch.long)
    molecules.append(Data(x=atoms, edge_index=bonds, edge_attr=kinds, y=target))

# Graphs, all their spectra at once, batches, a model, and a loop.
graphs = graph_set_from_pyg(molecules)
store = GraphStore.build(graphs, decompose_many(graphs))
batches = Batches(store, range(250), batch_size=25)
model = sf.GraphSpecformer([1], [2], hidden_channels=32, out_channels=1, num_layers=2, num_heads=4)
optimiser = torch.optim.AdamW(model.parameters(), lr=0.003)
for epoch in range(15):
    for batch in batches.epoch(epoch):
        loss = (model(store.batch(*batch)) - store.labels(batch.index)).abs().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    if epoch % 5 == 4:
        print(f"epoch {epoch + 1:2d}  loss of the last batch {loss.item():.3f}")

model.eval()
test = torch.arange(250, 300)
with torch.no_grad():
    error = (model(store.exact(test)) - store.labels(test)).abs().mean()
spread = (store.labels(test) - store.labels(test).mean()).abs().mean()
print(
    f"mean error on 50 other graphs: {float(error):.3f} (guessing their mean: {float(spread):.3f})"
)
