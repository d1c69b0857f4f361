use std::time::Duration;

use rand::RngExt;

/// Between three quarters of the time and all of it.
pub(in crate::agent) fn jitter(time: Duration) -> Duration {
    time.mul_f64(rand::rng().random_range(0.75..1.0))
}
