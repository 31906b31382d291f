//! How often values fall between bounds: counted by the thread that steps, read by any, without a lock.

use std::fmt::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Counts of values by size. Sized when it is made; counting allocates nothing.
#[derive(Debug)]
pub struct Histogram {
    /// Greatest value of each bucket, ascending. One more bucket takes what is greater than all.
    bounds: &'static [u64],
    /// `[bounds + 1]`
    counts: Box<[AtomicU64]>,
    sum: AtomicU64,
}

impl Histogram {
    /// An empty histogram with these bounds.
    pub fn new(bounds: &'static [u64]) -> Histogram {
        debug_assert!(bounds.is_sorted_by(|a, b| a < b), "{bounds:?}");
        let counts = (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect();
        Histogram { bounds, counts, sum: AtomicU64::new(0) }
    }

    /// Counts one value.
    pub fn observe(&self, value: u64) {
        let bucket = self.bounds.partition_point(|&bound| bound < value);
        self.counts[bucket].fetch_add(1, Relaxed);
        self.sum.fetch_add(value, Relaxed);
    }

    /// Writes the samples of a Prometheus histogram: how many values are at most each bound, and their sum and count.
    ///
    /// A value of one stands for `1 / per_unit` of the unit that is shown. Count and buckets agree whatever is counted
    /// meanwhile; the sum may be ahead or behind by what is.
    pub fn write(&self, name: &str, per_unit: u32, out: &mut String) -> fmt::Result {
        let shown = |value: u64| value as f64 / f64::from(per_unit);
        let mut total = 0;
        for (&bound, count) in self.bounds.iter().zip(&self.counts) {
            total += count.load(Relaxed);
            writeln!(out, "{name}_bucket{{le=\"{}\"}} {total}", shown(bound))?;
        }
        total += self.counts[self.bounds.len()].load(Relaxed);
        writeln!(out, "{name}_bucket{{le=\"+Inf\"}} {total}")?;
        writeln!(out, "{name}_sum {}", shown(self.sum.load(Relaxed)))?;
        writeln!(out, "{name}_count {total}")
    }
}

#[cfg(test)]
impl Histogram {
    /// Sets every count and the sum, as only ages of use could.
    pub fn fill(&self, value: u64) {
        self.counts.iter().chain([&self.sum]).for_each(|count| count.store(value, Relaxed));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_counts_in_the_first_bucket_that_takes_it_and_in_all_after() {
        let histogram = Histogram::new(&[1, 10, 2500]);
        for value in [0, 1, 2, 10, 11, 2500, 2501] {
            histogram.observe(value);
        }
        let mut text = String::new();
        histogram.write("x", 1000, &mut text).expect("a String takes all");
        let wanted = "x_bucket{le=\"0.001\"} 2\nx_bucket{le=\"0.01\"} 4\nx_bucket{le=\"2.5\"} 6\nx_bucket{le=\"+Inf\"} 7\n\
                      x_sum 5.025\nx_count 7\n";
        assert_eq!(text, wanted);
    }
}
