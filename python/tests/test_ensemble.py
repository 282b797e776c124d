"""The example of the README of the Python ampere, after changing its import of Arkouda. tests/tests/python.rs runs it in a
directory with a trace of eight ranks: four counters of known power, each of which two ranks share."""

import re
import unittest
import unittest.mock

import ampere.arkouda as ak
import matplotlib
from ampere import AmpereSession, Ensemble, Error, MetricConfig, MetricType, Visualizer, connect

matplotlib.use("Agg")

TRACE = "./hpl-with-wrapper-trace"
METRICS = [f"A2rocm_smi:::energy_count:device={device}" for device in (0, 2, 4, 6)]
# The counters have 100, 117, 134 and 151 W, and start one after the other.
WATTS = [100.0 + 17 * number for number in range(4)]
JOULES = [watts * (1.99 - 0.05 * (number + 1)) for number, watts in enumerate(WATTS)]


def my_hpc_topology(metric_name, ranks):
    first = {"device=4": 0, "device=2": 2, "device=6": 4, "device=0": 6}
    for device, rank in first.items():
        if device in metric_name:
            return [r for r in ranks if r.name in [f"MPI Rank {rank}", f"MPI Rank {rank + 1}"]]
    return ranks


class Example(unittest.TestCase):
    def setUp(self):
        connect(server="localhost", port=5555)
        self.configs = {
            re.compile(r".*rocm.*energy.*"): MetricConfig(MetricType.CUMULATIVE, scale_factor=1e-6),
            re.compile(r".*rocm.*power.*"): MetricConfig(MetricType.INSTANTANEOUS, scale_factor=1e-6),
        }
        topo = {"Node0": [f"MPI Rank {i}" for i in range(8)]}
        self.ensemble = Ensemble.from_trace_paths([TRACE], topo, self.configs)

    def attributed(self, **options):
        frames = [self.ensemble.attribute(metric, topology_resolver=my_hpc_topology, **options) for metric in METRICS]
        return ak.DataFrame.concat(frames)

    def test_joules_and_watts_are_those_of_the_counters(self):
        with AmpereSession(server="localhost", port=5555):
            df_joules = self.attributed(strategy="exclusive")
        columns = ["Start Time", "End Time", "Name", "Depth", "Value", "Rank", "Node", "Run"]
        self.assertEqual(list(df_joules.columns), columns)
        self.assertEqual((set(df_joules.Node), set(df_joules.Run)), ({"Node0"}, {"hpl-with-wrapper-trace"}))
        self.assertAlmostEqual(df_joules.Value.sum(), sum(JOULES), places=3)
        # Device 4 has 134 W from 0.15 s on, so that its samples cover all but the first two of 20 calls of 10 ms.
        solve = df_joules[(df_joules.Rank == "MPI Rank 0") & (df_joules.Name == "solve")]
        self.assertEqual((len(solve), int((solve.Value > 0).sum())), (20, 18))
        self.assertAlmostEqual(solve.Value.sum(), 18 * 0.010 * 134 / 2, places=4)
        inclusive = self.attributed()
        main = inclusive[(inclusive.Rank == "MPI Rank 0") & (inclusive.Name == "main")]
        self.assertAlmostEqual(main.Value.sum(), JOULES[2] / 2, places=3)
        rates = self.attributed(output_mode="rate", strategy="exclusive")
        rates = rates[(rates.Rank == "MPI Rank 0") & (rates.Name == "solve")].Value
        self.assertAlmostEqual(rates[rates > 0].min(), 67, places=3)
        self.assertAlmostEqual(rates.max(), 67, places=3)
        independent = self.attributed(concurrency_mode="independent", strategy="exclusive")
        self.assertAlmostEqual(independent.Value.sum(), 2 * sum(JOULES), places=2)

    def test_pictures_show_functions_ranks_and_metrics(self):
        df_joules = self.attributed(strategy="exclusive")
        node_metrics = self.ensemble.runs[0].nodes[0].metrics
        self.assertEqual(sorted(node_metrics), METRICS)
        for metric, joules in zip(METRICS, JOULES):
            self.assertAlmostEqual(node_metrics[metric].values[-1], joules, places=2)
        metrics_to_plot = [m for name, m in node_metrics.items() if "energy_count" in name]
        shown = []

        def show():
            texts = matplotlib.pyplot.gcf().findobj(matplotlib.text.Text)
            shown.append({text.get_text() for text in texts})

        with unittest.mock.patch("matplotlib.pyplot.show", show):
            Visualizer.plot_flamegraph(df_joules, rank_filter="MPI Rank 0", metric_name="Joules")
            Visualizer.plot_node_view(
                attributed_df=df_joules,
                ranks=["MPI Rank 0", "MPI Rank 1"],
                metrics_data=metrics_to_plot,
                title="Node 0 Analysis",
            )
            Visualizer.plot_heatmap(
                df_joules, "Energy Heatmap (Rank vs Function)", cmap="coolwarm", top_n=24, aggregation_func="sum"
            )
            Visualizer.plot_distribution(df_joules, "Joules")
        flames, view, heat, distribution = shown
        self.assertTrue({"Energy Flame Graph - MPI Rank 0", "main", "Joules"} <= flames, flames)
        self.assertTrue({"Node 0 Analysis", "MPI Rank 1", "main", *METRICS} <= view, view)
        self.assertTrue({"Energy Heatmap (Rank vs Function)", "solve", "main", "MPI Rank 7", "12.1"} <= heat, heat)
        self.assertIn("Metric Distribution: Joules", distribution)
        self.assertEqual(matplotlib.pyplot.get_fignums(), [])
        Visualizer.plot_heatmap(df_joules, save_path="heat.svg")
        with open("heat.svg") as file:
            self.assertIn("solve", file.read())

    def test_what_cannot_be_attributed_is_an_error(self):
        with self.assertRaises(Error):
            Ensemble.from_trace_paths(["nowhere"], {"Node0": ["MPI Rank 0"]}, self.configs)
        with self.assertRaisesRegex(ValueError, "output_mode='min'"):
            self.ensemble.attribute(METRICS[0], output_mode="min")
        with self.assertRaisesRegex(Error, METRICS[0]):
            self.ensemble.attribute("A2rocm_smi:::energy_count:device=9")
        with self.assertRaisesRegex(KeyError, METRICS[0]):
            Ensemble.from_trace_paths([TRACE], {"Node0": ["MPI Rank 99"]}, self.configs).attribute(METRICS[0])
        with self.assertRaisesRegex(Error, "no number"):
            Ensemble.from_trace_paths([TRACE], {"Node0": ["leader"]}, self.configs).attribute(METRICS[0])
