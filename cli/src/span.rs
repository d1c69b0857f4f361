//! Times on the command line, and the end of commands that go on until they are told to stop.

use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};

use super::Failure;

const FORMS: &str = "allowed: a whole number and ms, s, m, h or d, for example 500ms, 2s, 1m";
/// Longest time that is taken.
const MAX: Duration = Duration::from_secs(365 * 86_400);

/// Reads `500ms`, `2s`, `1m`, `3h`, `1d`.
pub(super) fn parse(text: &str) -> Result<Duration, String> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let unit_ms: u64 = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return Err(FORMS.to_owned()),
    };
    let number: u64 = number.parse().map_err(|_| FORMS.to_owned())?;
    let span = number.checked_mul(unit_ms).map(Duration::from_millis).filter(|span| *span <= MAX);
    span.ok_or_else(|| format!("too long; {FORMS}, at most 365d"))
}

/// Like [`parse`], at least 50 ms: how often something is done again.
pub(super) fn parse_interval(text: &str) -> Result<Duration, String> {
    let span = parse(text)?;
    if span < Duration::from_millis(50) { Err("at least 50ms".to_owned()) } else { Ok(span) }
}

/// Like [`parse_interval`]; a bare number means seconds.
pub(super) fn parse_seconds(text: &str) -> Result<Duration, String> {
    let bare = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if bare { parse_interval(&format!("{text}s")) } else { parse_interval(text) }
}

/// Whole milliseconds.
pub(super) fn ms(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

/// SIGINT and SIGTERM: the orderly end of a command that would go on.
pub(super) struct Stop {
    interrupt: Signal,
    terminate: Signal,
}

impl Stop {
    pub fn new() -> Result<Self, Failure> {
        let listen = |kind| signal(kind).map_err(|error| Failure::io("listening for signals", &error));
        Ok(Self { interrupt: listen(SignalKind::interrupt())?, terminate: listen(SignalKind::terminate())? })
    }

    /// Waits for `pause`. True where the end was asked for instead.
    pub async fn within(&mut self, pause: Duration) -> bool {
        self.or(tokio::time::sleep(pause)).await.is_none()
    }

    /// Does `work`. None where the end was asked for before it was done: the rest of it is dropped.
    pub async fn or<T>(&mut self, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            _ = self.interrupt.recv() => None,
            _ = self.terminate.recv() => None,
            done = work => Some(done),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // TOK-6: a reaper that runs every 2 minutes where 2 ms were meant leaves claims of the dead unopened.
    #[test]
    fn tok_6_times_are_a_number_and_a_unit() {
        for (text, ms) in
            [("0ms", 0), ("500ms", 500), ("2s", 2_000), ("1m", 60_000), ("3h", 10_800_000), ("365d", 31_536_000_000)]
        {
            assert_eq!(parse(text), Ok(Duration::from_millis(ms)), "{text}");
        }
        for text in [
            "",
            "5",
            "s",
            "-1s",
            "1.5s",
            "1 s",
            "1S",
            "1w",
            "366d",
            "99999999999999999999s",
            "9999999999999999999d",
            "1sä",
        ] {
            assert!(parse(text).is_err_and(|problem| problem.contains("500ms")), "{text}");
        }
        assert!(parse_interval("49ms").is_err());
        assert_eq!(parse_seconds("5"), Ok(Duration::from_secs(5)));
        assert_eq!(parse_seconds("200ms"), Ok(Duration::from_millis(200)));
        assert!(parse_seconds("0").is_err() && parse_seconds("").is_err());
    }
}
