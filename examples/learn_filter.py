"""Learn your own filter on an image, draw it, and save it.

    python examples/learn_filter.py             a photograph that ships with scikit-image
    python examples/learn_filter.py photo.png   your own image

The model sees the image and its filtered version, never the filter.
"""

import sys

import torch

import specformer as sf
from specformer.datasets import image_signal, photographs
from specformer.reports.plots.spectral_plots import filter_plot
from specformer.reports.plots.svg import save_png
from specformer.training.engine.stacking import unstack
from specformer.training.loops.signals import SignalTask, fit_signals
from specformer.training.optim.schedule import Schedule


def notches(eigenvalues: torch.Tensor) -> torch.Tensor:
    """Keep everything except two narrow bands. Write your own filter here."""
    first = torch.exp(-100 * (eigenvalues - 0.5) ** 2)
    second = torch.exp(-100 * (eigenvalues - 1.3) ** 2)
    return 1 - first - second


torch.manual_seed(0)
signals = image_signal(sys.argv[1], largest=40) if sys.argv[1:] else photographs(40, count=1)
spectrum = sf.decompose(signals.graph, mirrors=signals.mirrors)
values = spectrum.distinct.values
task = SignalTask(
    spectrum=spectrum,
    signals=torch.as_tensor(signals.signals),
    responses=notches(values).unsqueeze(0),
    mask=torch.as_tensor(signals.mask),
)

no_dropout = {"transformer_dropout": 0.0, "feature_dropout": 0.0, "propagation_dropout": 0.0}
linear = {"num_layers": 1, "num_heads": 1, "sharing": "small", "space": "hidden", "bias": False}
fresh = sf.Specformer(1, 16, 1, **linear, **no_dropout)
schedule = Schedule(epochs=300)
fit = fit_signals(
    [fresh],
    task,
    spectrum,
    schedule,
    landmarks=256,
    solve_readout=True,
    on_progress=lambda done, loss: print(f"epoch {done:3d}  loss {loss:.3g}"),
)
print(f"squared error {float(fit.sse[0]):.3g}, R² {float(fit.r2[0]):.7f}")

model = unstack(fit.model, 0, fresh)
with torch.no_grad():
    learned = model.linear_response(spectrum.distinct.tokens)[:, 0, 0]
picture = filter_plot(
    values.numpy(), task.responses[0].numpy(), {"specformer": learned.numpy()}, title="Two notches"
)
save_png(picture, "learned-filter.png")
model.save_pretrained("learned-filter")
print("learned-filter.png shows the filter, learned-filter/ has the model")
