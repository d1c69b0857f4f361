use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use crate::Failure;

/// What was done in one stretch of time.
#[derive(Debug)]
pub(super) struct Flight {
    /// Operations per second.
    pub per_second: f64,
    /// How long each took, shortest first, in µs.
    micros: Vec<f64>,
}

impl Flight {
    /// The time that `percent` of the operations kept within, in µs.
    pub fn percentile(&self, percent: usize) -> Option<f64> {
        let place = self.micros.len().saturating_mul(percent) / 100;
        self.micros.get(place.min(self.micros.len().checked_sub(1)?)).copied()
    }
}

/// Repeats `operation` in `in_flight` tasks for `length`; it is told which task it is in, and how often that one has
/// run it.
pub(super) async fn fly<F, Fut>(in_flight: usize, length: Duration, operation: F) -> Result<Flight, Failure>
where
    F: Fn(usize, usize) -> Fut + Clone + Send + 'static,
    Fut: Future<Output = Result<(), Failure>> + Send,
{
    let started = Instant::now();
    let mut tasks = JoinSet::new();
    for lane in 0..in_flight {
        let operation = operation.clone();
        tasks.spawn(async move {
            let mut micros = Vec::new();
            while started.elapsed() < length {
                let began = Instant::now();
                operation(lane, micros.len()).await?;
                micros.push(began.elapsed().as_secs_f64() * 1e6);
            }
            Ok::<_, Failure>(micros)
        });
    }
    let mut micros = Vec::new();
    while let Some(ended) = tasks.join_next().await {
        micros.extend(ended.map_err(|error| Failure::io("measuring", &error))??);
    }
    let count = u32::try_from(micros.len()).map(f64::from).unwrap_or(f64::MAX);
    let per_second = count / started.elapsed().as_secs_f64();
    micros.sort_by(f64::total_cmp);
    Ok(Flight { per_second, micros })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_flight_counts_every_operation_and_knows_its_slow_ones() {
        let flight = fly(2, Duration::from_millis(20), |_, turn| async move {
            tokio::time::sleep(Duration::from_millis(if turn == 0 { 5 } else { 1 })).await;
            Ok(())
        });
        let Ok(flight) = flight.await else { panic!("nothing can fail") };
        assert!(flight.per_second > 0.0 && flight.percentile(99) >= Some(5_000.0), "{flight:?}");
        assert!(flight.percentile(50) <= flight.percentile(99));
        assert_eq!(Flight { per_second: 0.0, micros: Vec::new() }.percentile(50), None);
    }
}
