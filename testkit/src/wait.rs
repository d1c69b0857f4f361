//! Waiting for a condition instead of for time.

use std::panic::Location;
use std::time::{Duration, Instant};

/// What a probe may answer: `false` and `None` mean "not yet".
pub trait Answer {
    /// What the wait hands back once the condition holds.
    type Value;
    /// The value, if the condition holds.
    fn ready(self) -> Option<Self::Value>;
}

impl Answer for bool {
    type Value = ();
    fn ready(self) -> Option<()> {
        self.then_some(())
    }
}

impl<T> Answer for Option<T> {
    type Value = T;
    fn ready(self) -> Option<T> {
        self
    }
}

const SHORTEST_PAUSE: Duration = Duration::from_millis(2);
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

/// Asks `probe` again and again until it answers `true` or `Some`, at most `timeout`, and hands back the value.
///
/// Panics, naming `what` and the caller's line, when the time is over. A probe that hangs counts against the time too.
#[track_caller]
pub fn eventually<P, A>(what: &str, timeout: Duration, mut probe: P) -> impl Future<Output = A::Value>
where
    P: AsyncFnMut() -> A,
    A: Answer,
{
    let caller = Location::caller();
    async move {
        let begin = Instant::now();
        let mut pause = SHORTEST_PAUSE;
        let mut asked = 0_u64;
        let polling = async {
            loop {
                asked += 1;
                if let Some(value) = probe().await.ready() {
                    return value;
                }
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        };
        match tokio::time::timeout(timeout, polling).await {
            Ok(value) => value,
            Err(_) => panic!("{caller}: gave up after {:?} and {asked} looks: {what}", begin.elapsed()),
        }
    }
}
