//! The square wave: the times at which the load became busy and idle.

use anyhow::bail;

/// The minimum number of periods from which the spread of a figure can be estimated.
pub const PERIODS_MIN: usize = 4;

/// An edge of the wave. Times are nanoseconds of CLOCK_MONOTONIC.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Edge {
    pub at_ns: u64,
    pub rises: bool,
}

/// A complete wave. Its times are in seconds after its first edge, which is a rise.
#[derive(Clone, Debug, PartialEq)]
pub struct Wave {
    pub origin_ns: u64,
    /// The alternating rises and falls of the load.
    edges: Vec<f64>,
    /// The seconds for which the load was busy before each edge.
    busy_before: Vec<f64>,
    /// The median time between two rises.
    pub period: f64,
}

impl Wave {
    /// Makes a wave from edges. A fall before the first rise and a rise after the last fall are left out, because they bound no
    /// busy phase. The error text is printed after the load's name and a colon.
    pub fn new(edges: &[Edge]) -> anyhow::Result<Wave> {
        let first = edges.iter().position(|edge| edge.rises).unwrap_or(edges.len());
        let last = edges.iter().rposition(|edge| !edge.rises).map_or(0, |last| last + 1);
        let edges = edges.get(first..last).unwrap_or_default();
        let wrong = edges.windows(2).find(|pair| pair[0].rises == pair[1].rises);
        if let Some([_, second]) = wrong {
            let which = if second.rises { "rise" } else { "fall" };
            bail!("the edge \"{which}\" appears twice in a row, at {} ns", second.at_ns);
        }
        if let Some([first, second]) = edges.windows(2).find(|pair| pair[1].at_ns <= pair[0].at_ns) {
            bail!("its edges go back in time, from {} ns to {} ns", first.at_ns, second.at_ns);
        }
        if edges.len() < 2 * PERIODS_MIN {
            let periods = edges.len() / 2;
            bail!("too few periods of busy and idle, {periods}: {PERIODS_MIN} are needed, 20 are good");
        }
        let origin_ns = edges[0].at_ns;
        let times: Vec<f64> = edges.iter().map(|edge| (edge.at_ns - origin_ns) as f64 * 1e-9).collect();
        let mut busy = 0.0;
        let mut busy_before = vec![0.0];
        for (number, pair) in times.windows(2).enumerate() {
            busy += if number.is_multiple_of(2) { pair[1] - pair[0] } else { 0.0 };
            busy_before.push(busy);
        }
        let periods = times.windows(3).step_by(2).map(|edges| edges[2] - edges[0]);
        let period = quantile(&mut periods.collect::<Vec<_>>(), 0.5);
        Ok(Wave { origin_ns, edges: times, busy_before, period })
    }

    pub fn periods(&self) -> usize {
        self.edges.len() / 2
    }

    /// Returns the busy fraction of the time from the first rise to the end of the idle phase after the last fall.
    pub fn duty(&self) -> f64 {
        let last = self.edges.len() - 1;
        let idle = (self.edges[last] - self.busy_before[last]) / (self.periods() - 1) as f64;
        self.busy_before[last] / (self.edges[last] + idle)
    }

    pub fn end(&self) -> f64 {
        self.edges[self.edges.len() - 1]
    }

    pub fn cursor(&self) -> Cursor<'_> {
        Cursor { wave: self, next: 0 }
    }

    /// Returns the distance of a time from the nearest edge, in seconds.
    pub fn to_nearest_edge(&self, time: f64) -> f64 {
        let next = self.edges.partition_point(|edge| *edge <= time);
        let near = self.edges[next.saturating_sub(1)..].iter().take(2);
        near.map(|edge| (time - edge).abs()).fold(f64::INFINITY, f64::min)
    }

    /// Returns the position of a time in its period, from 0 at the rise to below 1. Outside the wave, the period continues.
    pub fn phase(&self, time: f64) -> f64 {
        let rises = self.edges.len() / 2;
        let (mut low, mut high) = (0, rises);
        while low + 1 < high {
            let middle = (low + high) / 2;
            if self.edges[2 * middle] <= time { low = middle } else { high = middle }
        }
        ((time - self.edges[2 * low]) / self.period).rem_euclid(1.0)
    }
}

/// Computes how long the load was busy up to given times. The times must not decrease, so that each search continues where
/// the previous one ended.
pub struct Cursor<'a> {
    wave: &'a Wave,
    next: usize,
}

impl Cursor<'_> {
    /// Returns the busy seconds from the first rise until a time, which must not decrease.
    pub fn busy_until(&mut self, time: f64) -> f64 {
        let edges = &self.wave.edges;
        while self.next < edges.len() && edges[self.next] <= time {
            self.next += 1;
        }
        match self.next {
            0 => 0.0,
            next => {
                let is_busy = !next.is_multiple_of(2);
                self.wave.busy_before[next - 1] + if is_busy { time - edges[next - 1] } else { 0.0 }
            }
        }
    }
}

/// Returns the value below which this fraction of the values lies; NaN for no values. Sorts the values.
pub fn quantile(values: &mut [f64], part: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let Some(last) = values.len().checked_sub(1) else { return f64::NAN };
    let at = part * last as f64;
    let (low, high) = (values[at.floor() as usize], values[at.ceil() as usize]);
    low + (high - low) * at.fract()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns alternating rises and falls at these milliseconds.
    pub fn edges(milliseconds: &[u64]) -> Vec<Edge> {
        let edges = milliseconds.iter().enumerate();
        edges.map(|(n, ms)| Edge { at_ns: 7_000_000_000 + ms * 1_000_000, rises: n % 2 == 0 }).collect()
    }

    #[test]
    fn busy_time_is_that_between_rise_and_fall() {
        let wave = Wave::new(&edges(&[0, 400, 1000, 1400, 2000, 2400, 3000, 3400])).unwrap();
        assert_eq!((wave.periods(), wave.period, wave.origin_ns), (4, 1.0, 7_000_000_000));
        let mut cursor = wave.cursor();
        for (time, expected) in [(-1.0, 0.0), (0.1, 0.1), (0.9, 0.4), (1.2, 0.6), (3.3, 1.5), (9.0, 1.6)] {
            assert!((cursor.busy_until(time) - expected).abs() < 1e-9, "{time}");
        }
        assert!((wave.duty() - 0.4).abs() < 1e-9);
        assert!(
            (wave.to_nearest_edge(0.9) - 0.1).abs() < 1e-9 && (wave.to_nearest_edge(-0.5) - 0.5).abs() < 1e-9
        );
        for (time, phase) in [(0.25, 0.25), (3.75, 0.75), (4.25, 0.25), (-0.25, 0.75)] {
            assert!((wave.phase(time) - phase).abs() < 1e-9, "{time}");
        }
    }

    #[test]
    fn edges_that_do_not_form_a_wave_are_refused() {
        let refused = |edges: &[Edge]| Wave::new(edges).unwrap_err().to_string();
        assert!(refused(&[]).ends_with("idle, 0: 4 are needed, 20 are good"));
        assert!(refused(&edges(&[0, 5, 10, 15])).contains("idle, 2: 4 are needed"));
        assert!(refused(&edges(&[0, 5, 4, 15, 20, 25, 30, 35])).contains("go back in time"));
        let mut double = edges(&[0, 5, 10, 15, 20, 25, 30, 35]);
        double[1].rises = true;
        assert!(refused(&double).starts_with("the edge \"rise\" appears twice in a row"));
        // Edges that bound no busy phase are left out.
        let whole = edges(&[10, 15, 20, 25, 30, 35, 40, 45, 50]);
        assert_eq!(Wave::new(&whole).unwrap().periods(), 4);
    }

    #[test]
    fn quantiles() {
        assert_eq!(quantile(&mut [3.0, 1.0, 2.0], 0.5), 2.0);
        assert_eq!(quantile(&mut [1.0, 2.0], 0.5), 1.5);
        assert!(quantile(&mut [], 0.5).is_nan());
    }
}
