"""Tests of an installed wheel. tests/tests/python.rs runs them in a directory with the results
`first` of an instrumented program and `gpu` of one with kernels."""

import ast
import html
import json
import os
import pathlib
import subprocess
import sys
import unittest

import ampere


class WithoutOtherPackages(unittest.TestCase):
    def error(self, call, *arguments, **keywords):
        with self.assertRaises(ampere.Error) as raised:
            call(*arguments, **keywords)
        self.assertEqual(len(str(raised.exception).splitlines()), 1)
        return str(raised.exception)

    def test_importing_imports_no_data_frames(self):
        script = "import sys, ampere; print([m for m in ('pandas', 'numpy', 'pyarrow', 'polars', 'dask') if m in sys.modules])"
        self.assertEqual(subprocess.check_output([sys.executable, "-c", script], text=True), "[]\n")

    def test_a_summary_is_read(self):
        run = ampere.load("first")
        with open("first/summary.json") as file:
            self.assertEqual(run.summary, json.load(file))
        self.assertGreater(len(run.regions), 0)
        self.assertEqual(len(run.devices), len(run.summary["devices"]))
        self.assertIn("exclusive_joules", run.regions._repr_html_())
        shown = run._repr_html_()
        first_lines = subprocess.check_output(["ampere", "report", "first"], text=True).split("\n\n")[0]
        self.assertIn(f"<pre>{html.escape(first_lines)}</pre>", shown)
        self.assertIn("<th>exclusive_joules</th>", shown)
        self.assertIn(run.summary["run"]["id"], repr(run))

    def test_regions_and_work_of_a_script_are_in_its_run(self):
        script = "import ampere\nwith ampere.region('solve'): ampere.work('steps', 100)"
        subprocess.check_call(["ampere", "run", "-q", "-o", "marked", "--", sys.executable, "-c", script])
        run = ampere.load("marked")
        self.assertEqual([(work["name"], work["units"]) for work in run.summary["run"]["work"]], [("steps", 100)])
        named = [region for device in run.summary["devices"] for view in device["views"] for region in view["regions"]]
        self.assertEqual([region["calls"] for region in named if region["region"] == "solve"], [1])

    def test_what_cannot_be_read_is_named_in_one_line(self):
        self.assertIn("nowhere/summary.json", self.error(ampere.load, "nowhere"))
        os.makedirs("broken", exist_ok=True)
        with open("broken/summary.json", "w") as file:
            file.write('{"schema": "ampere-summary/2", "run": ')
        self.assertIn("broken/summary.json", self.error(ampere.load, "broken"))
        self.assertIn("nowhere.otf2", self.error(ampere.attribute, "nowhere.otf2"))
        self.assertIn("'cheapest'", self.error(ampere.attribute, "first/traces.otf2", policy="cheapest"))
        self.assertIn("does not answer", self.error(ampere.live, "http://127.0.0.1:9"))
        self.assertIn("no run is running in first", self.error(ampere.live, "first"))
        os.makedirs("elsewhere", exist_ok=True)
        with open("elsewhere/collector.json", "w") as file:
            json.dump({"url": "http://127.0.0.1:9977", "node": "other-node", "run": "r"}, file)
        self.assertIn("only on other-node", self.error(ampere.live, "elsewhere"))

    def test_a_running_run_has_figures(self):
        command = ["ampere", "run", "-q", "-o", "running", "--", "cat"]
        with subprocess.Popen(command, stdin=subprocess.PIPE, env={**os.environ, "AMPERE_LISTEN": "127.0.0.1:0"}) as process:
            figures = None
            while figures is None:
                self.assertIsNone(process.poll())
                try:
                    figures = ampere.live("running")
                except ampere.Error:
                    pass
            process.stdin.close()
        self.assertEqual((figures["state"], figures["run"]["command"]), ("running", ["cat"]))
        self.error(ampere.live, "running")


class WithDataFrames(unittest.TestCase):
    """The same figures in each kind of data frame."""

    def setUp(self):
        self.run_of_program = ampere.load("first")
        devices = self.run_of_program.summary["devices"]
        self.joules = sum(device["views"][0]["attributed_joules"] for device in devices)

    def assert_sum(self, values):
        self.assertAlmostEqual(float(values), self.joules, delta=1e-6 * self.joules)

    def test_call_paths_and_regions(self):
        paths = self.run_of_program.call_paths
        rows = paths.to_pandas()
        idle = rows.region.isin(["(idle)", "(lost)"])
        in_paths = rows[(rows.view == "ranks") & (rows.path != "")]
        self.assertTrue(idle.any() or len(in_paths) == len(rows))
        self.assert_sum(in_paths.exclusive_joules.sum())
        self.assertEqual(len(paths), len(rows))
        self.assertEqual(len(paths.to_polars()), len(rows))
        self.assertEqual(paths.to_arrow().num_rows, len(rows))
        self.assertIn("main", paths._repr_html_())
        regions = self.run_of_program.regions
        self.assert_sum(regions.to_pandas().exclusive_joules.sum())
        self.assert_sum(regions.to_polars()["exclusive_joules"].sum())
        import polars

        self.assertEqual(len(polars.DataFrame(regions)), len(regions))
        self.assertEqual(list(self.run_of_program.kernels.to_pandas().columns), list(regions.to_pandas().columns))
        self.assertAlmostEqual(self.run_of_program.devices.to_pandas().ranks_attributed_joules.sum(), self.joules)

    def test_kernels_are_those_of_the_kernels_view(self):
        kernels = ampere.load("gpu").kernels.to_pandas()
        self.assertGreater(len(kernels), 0)
        self.assertEqual(set(kernels.view), {"kernels"})

    def test_calls_are_a_file_that_dask_reads_in_parts(self):
        calls = self.run_of_program.write_calls("calls.parquet")
        self.assertTrue(os.path.exists("calls.parquet") and os.path.exists("calls.callpaths.parquet"))
        ranks = calls.to_dask().query("view == 'ranks'")
        self.assert_sum(ranks.exclusive_joules.sum().compute())
        self.assertEqual(len(self.run_of_program.calls), len(calls))

    def test_a_trace_has_the_same_figures_as_its_run(self):
        run = ampere.attribute("first/traces.otf2")
        for name in ("call_paths", "regions"):
            first, again = getattr(self.run_of_program, name).to_pandas(), getattr(run, name).to_pandas()
            self.assertEqual(list(first.exclusive_joules), list(again.exclusive_joules))
        self.assertEqual(len(run.calls), len(self.run_of_program.calls))
        over_time = run.timeline(bins=10).to_pandas()
        self.assertAlmostEqual(over_time[over_time.view == "ranks"].joules.sum(), run.summary["run"]["total_joules"], delta=1e-3)

    def test_the_notebook_of_the_book_runs(self):
        import matplotlib

        matplotlib.use("Agg")
        path = pathlib.Path(__file__).parents[2] / "docs/src/notebook.ipynb"
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        names, shown = {}, []
        for cell in (cell for cell in cells if cell["cell_type"] == "code"):
            tree = ast.parse("".join(cell["source"]))
            # Jupyter shows the value of the last expression.
            last = tree.body.pop()
            exec(compile(tree, path, "exec"), names)
            shown.append(eval(compile(ast.Expression(last.value), path, "eval"), names))
        run, regions, largest, axes, calls = shown
        self.assertIn("<pre>", run._repr_html_())
        self.assertIn("main", regions._repr_html_())
        self.assert_sum(largest.sum())
        watts = axes.lines[0].get_ydata()
        self.assertEqual((len(watts), axes.get_ylabel()), (50, "W"))
        self.assertGreater(watts.max(), 0)
        self.assertIn("main", calls.index)
