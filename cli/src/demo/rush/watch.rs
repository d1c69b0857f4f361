//! What is watched while players wait: the line's channel, the places in the store, the line as a whole.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use tokio::sync::mpsc;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::story::Entry;
use super::world::World;
use crate::view;
use maitred::error::Result;
use maitred::ids::{NodeId, Player};
use maitred::queue::{Line, LineEvent, LineView};
use maitred::store::{FeedItem, Key, Store};

/// Between two looks at the places.
const SAMPLE_EVERY: Duration = Duration::from_millis(100);
/// Between two looks at the line.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// Between two lines where nobody watches a terminal.
const SAY_EVERY: Duration = Duration::from_secs(2);
/// A promise that ends in this moment counts no more, in ms.
const ENDS_MS: u64 = 100;
/// Far more promises than a backend of the demo has places.
const HELD_MAX: u64 = 1_000_000;

/// What the line's channel told, and the admissions behind it as the store had them.
#[derive(Debug, Default)]
pub(super) struct Told {
    pub seen: BTreeMap<String, Vec<Entry>>,
    pub told: BTreeMap<String, u64>,
    /// Gaps in what was heard, and admissions whose row could not be read.
    pub missed: u64,
}

/// Hears the line's channel until it ends.
pub(super) async fn collect(line: Line, mut items: mpsc::Receiver<FeedItem>, stop: CancellationToken) -> Told {
    let mut told = Told::default();
    loop {
        let item = tokio::select! {
            biased;
            item = items.recv() => item,
            () = stop.cancelled() => None,
        };
        match item {
            Some(FeedItem::Message(_, bytes)) => {
                if let Some(LineEvent::Admitted { line: name, players }) = LineEvent::read(&bytes)
                    && name == *line.name()
                {
                    let read = note(&line, &players, &mut told).await;
                    told.missed += u64::from(read.is_err());
                }
            }
            Some(FeedItem::Gap) => told.missed += 1,
            Some(FeedItem::Down) => {}
            None => return told,
        }
    }
}

async fn note(line: &Line, players: &[Player], told: &mut Told) -> Result<()> {
    let store = line.store();
    let names: Vec<String> = players.iter().map(|player| format!("{}:{player}", line.name())).collect();
    let keys: Vec<Key<'_>> = names.iter().map(|name| store.keys().pass(name)).collect();
    let rows = store.fields(&keys, &["serial", "seq", "lane", "server"]).await;
    for player in players {
        *told.told.entry(player.to_string()).or_default() += 1;
    }
    for (player, row) in players.iter().zip(rows?) {
        let Some((serial, seq)) = row.number("serial").zip(row.number("seq")) else { continue };
        let lane = row.text("lane").parse().unwrap_or(0);
        let entry = Entry { serial, seq, lane, server: row.text("server").to_owned() };
        told.seen.entry(player.to_string()).or_default().push(entry);
    }
    Ok(())
}

/// What was found at the places.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Samples {
    pub looks: u64,
    /// Looks at a backend that had nothing to give: an arrival counts twice until a beat has named it.
    pub full: u64,
    /// Looks at a backend with more players, promised and there, than places.
    pub oversold: u64,
    /// Looks that the store did not answer.
    pub failed: u64,
}

/// Looks at every backend's places in the store, again and again: who is promised one, and who is there.
pub(super) async fn sample(world: Arc<World>, store: Store, stop: CancellationToken) -> Samples {
    let mut samples = Samples::default();
    let mut ids: Vec<NodeId> = Vec::new();
    for id in world.doors.keys() {
        ids.extend(NodeId::new(id).ok());
    }
    while !stop.is_cancelled() {
        for id in &ids {
            let Some(door) = world.doors.get(id.as_str()) else { continue };
            // Who was there before and after the read was there during it.
            let before = door.players();
            let from = format!("({}", store.clock().now_ms() + ENDS_MS);
            let held = store.first_between(store.keys().held(id), &from, "+inf", HELD_MAX).await;
            let after = door.players();
            let Ok(held) = held else {
                samples.failed += 1;
                continue;
            };
            let row = store.row(store.keys().node(id)).await;
            let published = row.ok().and_then(|row| row.number("players")).unwrap_or(0);
            let promised = u64::try_from(held.len()).unwrap_or(u64::MAX);
            let there = before.intersection(&after).map(String::as_str);
            let used: BTreeSet<&str> = held.iter().filter_map(|claim| claim.split(' ').next()).chain(there).collect();
            let used = u64::try_from(used.len()).unwrap_or(u64::MAX);
            samples.looks += 1;
            samples.full += u64::from(published.saturating_add(promised) >= door.places);
            samples.oversold += u64::from(used > door.places);
        }
        sleep(SAMPLE_EVERY).await;
    }
    samples
}

/// Shows the line while it runs: on a terminal again and again at the same place, else a line now and then.
pub(super) async fn show(world: Arc<World>, line: Line, bar: ProgressBar, say: fn(&str), stop: CancellationToken) {
    let mut said: Option<Instant> = None;
    while !stop.is_cancelled() {
        if let Ok(view) = line.view().await {
            let text = text(&world, &view);
            bar.set_position(world.admitted.load(Ordering::Relaxed));
            if bar.is_hidden() {
                if said.is_none_or(|said| said.elapsed() >= SAY_EVERY) {
                    say(&text);
                    said = Some(Instant::now());
                }
            } else {
                bar.set_message(text);
            }
        }
        sleep(LOOK_EVERY).await;
    }
}

fn text(world: &World, view: &LineView) -> String {
    let estimate = view.estimate_ms.map_or("not known".to_owned(), view::ago);
    let inside: usize = world.doors.values().map(|door| door.players().len()).sum();
    let places: u64 = world.doors.values().map(|door| door.places).sum();
    format!(
        "{} wait, {} away; {}.{} admitted/s, gate {}/s; the last waits about {estimate}; {inside} of {places} inside",
        view.waiting,
        view.away,
        view.admitted_per_1000_s / 1_000,
        view.admitted_per_1000_s % 1_000 / 100,
        view.rate,
    )
}
