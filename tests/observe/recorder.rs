//! A recorder that keeps every metric of this process, to be asked by name and labels.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder, SharedString, Unit,
};

/// A counter's sum, a gauge's last value, or the values of a histogram.
#[derive(Debug, Default)]
struct Cell(Mutex<Vec<f64>>);

impl Cell {
    fn change(&self, change: impl FnOnce(&mut Vec<f64>)) {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn set_to(&self, value: impl FnOnce(f64) -> f64) {
        self.change(|values| *values = vec![value(values.first().copied().unwrap_or(0.0))]);
    }
}

impl CounterFn for Cell {
    fn increment(&self, by: u64) {
        self.set_to(|sum| sum + by as f64);
    }

    fn absolute(&self, value: u64) {
        self.set_to(|_| value as f64);
    }
}

impl GaugeFn for Cell {
    fn increment(&self, by: f64) {
        self.set_to(|value| value + by);
    }

    fn decrement(&self, by: f64) {
        self.set_to(|value| value - by);
    }

    fn set(&self, value: f64) {
        self.set_to(|_| value);
    }
}

impl HistogramFn for Cell {
    fn record(&self, value: f64) {
        self.change(|values| values.push(value));
    }
}

/// Every metric by its text: `name{label=value,…}`.
#[derive(Debug, Default, Clone)]
pub struct Metrics(Arc<Mutex<BTreeMap<String, Arc<Cell>>>>);

impl Metrics {
    /// The recorder of this process, empty and for one test alone while the guard lives.
    pub async fn alone() -> (Self, tokio::sync::MutexGuard<'static, ()>) {
        static INSTALLED: OnceLock<Metrics> = OnceLock::new();
        static ALONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
        let install = || {
            let metrics = Self::default();
            metrics::set_global_recorder(metrics.clone()).expect("the only recorder");
            metrics
        };
        let guard = ALONE.lock().await;
        let metrics = INSTALLED.get_or_init(install).clone();
        metrics.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
        (metrics, guard)
    }

    /// The values of a metric; none where nothing was ever told.
    pub fn values(&self, text: &str) -> Vec<f64> {
        let cells = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let values = cells.get(text).map(|cell| cell.0.lock().unwrap_or_else(PoisonError::into_inner).clone());
        values.unwrap_or_default()
    }

    /// A counter's sum.
    pub fn count(&self, text: &str) -> f64 {
        self.values(text).first().copied().unwrap_or(0.0)
    }

    /// The texts of all metrics.
    pub fn texts(&self) -> Vec<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).keys().cloned().collect()
    }

    fn cell(&self, key: &Key) -> Arc<Cell> {
        let labels: Vec<String> = key.labels().map(|label| format!("{}={}", label.key(), label.value())).collect();
        let text =
            if labels.is_empty() { key.name().to_owned() } else { format!("{}{{{}}}", key.name(), labels.join(",")) };
        Arc::clone(self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(text).or_default())
    }
}

impl Recorder for Metrics {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.cell(key))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.cell(key))
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(self.cell(key))
    }
}
