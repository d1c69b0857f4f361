//! Where a player stands among all lanes, and how long it takes from there. Pure.

use super::options::LineOptions;

/// Length of a slot of the measured admissions, in ms.
const SLOT_MS: u64 = 2_000;
/// Shorter than this nothing is measured yet, in ms.
const MEASURED_MIN_MS: u64 = 1_000;
/// How long after a round without a free place the places count as what holds the line up, in ms: heartbeats bring new ones
/// more often.
const SHORT_MS: u64 = 4_000;
/// Over how many slots the pace is measured that the gate allows.
const LATEST_SLOTS: u64 = 4;
/// How long what the gate allows counts for more than what is measured, in ms: until that is measured over as long a time.
const GATE_TRUSTED_MS: u64 = LATEST_SLOTS * SLOT_MS;
/// One admission of a lane of weight one, in virtual time.
const STRIDE: u64 = 720_720;

/// What scripts say of a line beside the player's own place.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LineState {
    /// What the gate allows now, per second; 0 where nobody is admitted, also by an operator's word.
    pub rate: u64,
    /// Since when somebody has been waiting without a break, and somebody was there to admit, in store ms.
    pub busy_since_ms: u64,
    /// When a round last found no free place, in store ms; 0 for never.
    pub full_at_ms: u64,
    /// Admissions while others waited, by slots of 2 s, the latest first.
    pub recent: Vec<(u64, u64)>,
    /// How far each lane is ahead of the others in virtual time.
    pub ahead: Vec<u64>,
    /// Players in each lane.
    pub lengths: Vec<u64>,
}

impl LineState {
    /// Reads the texts of a script: rate, busy, full, recent, lanes, then a length for each lane.
    pub(super) fn read(values: &[String]) -> Option<Self> {
        let [rate, busy, full, recent, lanes, lengths @ ..] = values else { return None };
        let pair = |entry: &str| {
            let (slot, count) = entry.split_once(':')?;
            Some((slot.parse().ok()?, count.parse().ok()?))
        };
        Some(Self {
            rate: rate.parse().ok()?,
            busy_since_ms: busy.parse().unwrap_or(0),
            full_at_ms: full.parse().unwrap_or(0),
            recent: recent.split(' ').filter_map(pair).collect(),
            ahead: lanes.split(' ').filter_map(|text| text.parse().ok()).collect(),
            lengths: lengths.iter().map(|text| text.parse().ok()).collect::<Option<_>>()?,
        })
    }

    /// Players that are admitted before the one with `rank` (from 0) in `lane`, if nobody leaves.
    pub fn players_ahead(&self, options: &LineOptions, lane: usize, rank: u64) -> u64 {
        let lane = lane.min(options.lanes.len().saturating_sub(1));
        let tag = |index: usize, rank: u64| {
            let stride = STRIDE / u64::from(options.lanes.get(index).copied().unwrap_or(1).max(1));
            self.ahead.get(index).copied().unwrap_or(0).saturating_add(rank.saturating_mul(stride.max(1)))
        };
        let own = tag(lane, rank);
        let before = |index: usize| {
            let (first, stride) = (tag(index, 0), tag(index, 1) - tag(index, 0));
            // Of equal times the lower lane comes first.
            let limit = own.saturating_add(u64::from(index < lane));
            let count = if limit > first { (limit - first).div_ceil(stride.max(1)) } else { 0 };
            count.min(self.lengths.get(index).copied().unwrap_or(0))
        };
        (0..options.lanes.len()).map(|index| if index == lane { rank } else { before(index) }).sum()
    }

    /// The order of service as lane and rank, the first `most` of it, if nobody leaves.
    pub(super) fn order(&self, options: &LineOptions, lengths: &[u64], most: u64) -> Vec<(usize, u64)> {
        let mut lanes: Vec<(u64, u64, u64)> = options
            .lanes
            .iter()
            .enumerate()
            .map(|(lane, _)| {
                let (ahead, length) = (self.ahead.get(lane), lengths.get(lane));
                (ahead.copied().unwrap_or(0), 0, length.copied().unwrap_or(0))
            })
            .collect();
        let mut order = Vec::new();
        while order.len() as u64 != most {
            let waiting = lanes.iter_mut().enumerate().filter(|(_, (_, rank, length))| rank < length);
            let Some((lane, (ahead, rank, _))) = waiting.min_by_key(|(_, (ahead, ..))| *ahead) else { break };
            order.push((lane, *rank));
            *rank += 1;
            *ahead += STRIDE / u64::from(options.lanes.get(lane).copied().unwrap_or(1).max(1));
        }
        order
    }

    /// Admissions per second that may be expected: none through a shut gate; where places are short, what was measured since
    /// people wait; else what the gate allows, which gives way to what the last seconds measured. While thousands enter at
    /// once they keep the store and the proxies from admitting as fast as they will in a moment.
    pub fn pace(&self, now_ms: u64) -> f64 {
        let gate = whole(self.rate);
        if self.rate == 0 {
            return gate;
        }
        let places_since = if self.full_at_ms == 0 { 0 } else { self.full_at_ms.saturating_add(SHORT_MS) };
        if now_ms < places_since || (self.recent.is_empty() && self.full_at_ms >= self.busy_since_ms.max(1)) {
            return self.measured(now_ms).unwrap_or(0.0);
        }
        let age = now_ms.saturating_sub(self.busy_since_ms.max(places_since));
        if age < MEASURED_MIN_MS {
            return gate;
        }
        let first = (now_ms / SLOT_MS).saturating_sub(LATEST_SLOTS - 1);
        let span = now_ms.saturating_sub(self.busy_since_ms.max(first.saturating_mul(SLOT_MS)));
        let admitted: u64 = self.recent.iter().filter(|(slot, _)| *slot >= first).map(|(_, count)| count).sum();
        let latest = whole(admitted) * 1_000.0 / whole(span.max(MEASURED_MIN_MS));
        // Whole for as long, then less and less for as long again.
        let trusted = GATE_TRUSTED_MS.saturating_mul(2).saturating_sub(age).min(GATE_TRUSTED_MS);
        let trust = whole(trusted) / whole(GATE_TRUSTED_MS);
        gate * trust + latest * (1.0 - trust)
    }

    /// Admissions per second as they were measured since people wait; none where nobody was admitted. The oldest slot is
    /// left out where there are others: nobody knows when in it the first one was admitted.
    pub fn measured(&self, now_ms: u64) -> Option<f64> {
        let measured = match self.recent.split_last() {
            Some((_, others)) if !others.is_empty() => others,
            _ => self.recent.as_slice(),
        };
        let (oldest, _) = measured.last()?;
        let since = self.busy_since_ms.max(oldest.saturating_mul(SLOT_MS));
        let span = now_ms.saturating_sub(since).max(MEASURED_MIN_MS);
        let admitted: u64 = measured.iter().map(|(_, count)| count).sum();
        Some(whole(admitted) * 1_000.0 / whole(span))
    }

    /// How long the one behind `ahead` others waits, in ms; `None` where nobody is admitted now.
    pub fn wait_ms(&self, ahead: u64, now_ms: u64) -> Option<u64> {
        let rate = self.pace(now_ms);
        if rate <= 0.0 {
            return None;
        }
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`as` saturates; no NaN, no sign")]
        let ms = (whole(ahead.saturating_add(1)) * 1_000.0 / rate) as u64;
        Some(ms)
    }
}

/// Counts and spans are far below 2^53.
#[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
fn whole(number: u64) -> f64 {
    number as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::LineName;

    fn options(lanes: &[u32]) -> LineOptions {
        LineOptions { lanes: lanes.to_vec(), ..LineOptions::new(LineName::new("login").expect("valid")) }
    }

    // QUE-8: the number that a player is shown is the number of those who go first, lanes included.
    #[test]
    fn que_8_a_position_is_the_place_in_the_order_of_service() {
        let table: [(&[u32], &[u64], &[u64]); 6] = [
            (&[1], &[0], &[50]),
            (&[3, 1], &[0, 0], &[40, 40]),
            (&[3, 1], &[240_240, 0], &[5, 60]),
            (&[1, 1, 1], &[0, 720_720, 0], &[9, 3, 30]),
            (&[7, 2], &[0, 360_360], &[0, 12]),
            (&[1, 1_000], &[3, 1], &[30, 300]),
        ];
        for (lanes, ahead, lengths) in table {
            let state = LineState { ahead: ahead.to_vec(), lengths: lengths.to_vec(), ..LineState::default() };
            for (place, (lane, rank)) in state.order(&options(lanes), lengths, 1_000).into_iter().enumerate() {
                let ours = state.players_ahead(&options(lanes), lane, rank);
                assert_eq!(ours, place as u64, "{lanes:?} {ahead:?} {lengths:?}: lane {lane} rank {rank}");
            }
        }
    }

    // QUE-8: whoever is told five times the wait goes away, and whoever is told ten seconds before a full fleet waits for
    // nothing.
    #[test]
    fn que_8_the_wait_follows_what_is_admitted_and_not_what_the_gate_would_allow() {
        let mut state = LineState { rate: 500, busy_since_ms: 100_000, ..LineState::default() };
        assert_eq!(state.wait_ms(999, 100_100), Some(2_000), "nothing measured yet");
        (state.recent, state.full_at_ms) = (vec![(52, 0), (51, 200), (50, 3)], 103_000);
        let wait = state.wait_ms(999, 104_000).expect("moving");
        assert!((9_900..=10_100).contains(&wait), "places come at 100 a second: {wait}");
        assert_eq!(LineState::default().wait_ms(0, 1), None, "a closed gate has no end");
        state.recent.clear();
        assert_eq!(state.wait_ms(999, 104_000), None, "no place has come since somebody waits");
        assert_eq!(state.wait_ms(999, 900_000), None, "nor will one, as far as is known");
        state.busy_since_ms = 899_900;
        assert_eq!(state.wait_ms(999, 900_000), Some(2_000), "that was another day");
    }

    #[test]
    fn que_8_a_slow_start_is_not_taken_for_the_pace_and_a_slow_gate_is_found_out() {
        let mut state = LineState { rate: 500, busy_since_ms: 100_000, ..LineState::default() };
        state.recent = vec![(51, 200), (50, 100)];
        let wait = state.wait_ms(999, 104_000).expect("moving");
        assert_eq!(wait, 2_000, "75 a second is how it began");
        state.recent = vec![(57, 1_000), (56, 1_000), (55, 1_000), (54, 900), (51, 200), (50, 100)];
        let wait = state.wait_ms(999, 116_000).expect("moving");
        assert!((2_000..=2_100).contains(&wait), "the beginning is forgotten: {wait}");
        state.recent = vec![(57, 200), (56, 200), (55, 200), (54, 200), (53, 200)];
        let wait = state.wait_ms(999, 116_000).expect("moving");
        assert!((9_900..=13_400).contains(&wait), "100 a second, whatever the gate would allow: {wait}");
    }
}
