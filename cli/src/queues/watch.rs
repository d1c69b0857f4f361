use std::time::Duration;

use serde::Serialize;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use maitred::error::{Class, Result};
use maitred::ids::LineName;
use maitred::node::LivenessLimits;
use maitred::queue::{Line, LineEvent};
use maitred::store::{Feed, FeedChannel, FeedItem};

use super::super::Failure;
use super::super::context::Context;
use super::super::doubt::Doubts;
use super::super::span::Stop;
use super::super::view;
use super::known::ZoneLines;
use super::standing::{self, Standing};

/// One look of a live view.
#[derive(Debug, Serialize)]
struct Round {
    zone: String,
    as_of: u64,
    #[serde(flatten)]
    standing: Standing,
    #[serde(flatten)]
    heard: Heard,
}

/// What was heard of the line since the read before.
#[derive(Debug, Clone, Copy, Serialize)]
struct Heard {
    /// Times that somebody began to wait where nobody did.
    entered: Option<u64>,
    admitted: Option<u64>,
    left: Option<u64>,
}

impl Heard {
    /// Nothing happened.
    const NOTHING: Self = Self { entered: Some(0), admitted: Some(0), left: Some(0) };
    /// Nobody knows.
    const GAP: Self = Self { entered: None, admitted: None, left: None };

    fn take(&mut self, event: &LineEvent, name: &LineName) {
        let (count, more) = match event {
            LineEvent::Entered { line } if line == name => (&mut self.entered, 1),
            LineEvent::Admitted { line, players } if line == name => {
                (&mut self.admitted, u64::try_from(players.len()).unwrap_or(u64::MAX))
            }
            LineEvent::Drained { line, .. } if line == name => (&mut self.admitted, 1),
            LineEvent::Left { line, .. } if line == name => (&mut self.left, 1),
            _ => return,
        };
        *count = count.map(|count| count.saturating_add(more));
    }
}

struct Watch {
    zone: ZoneLines,
    line: Line,
    limits: LivenessLimits,
    feed: Feed,
    heard: mpsc::Receiver<FeedItem>,
}

/// Shows a line again and again until the end is asked for.
pub(super) async fn run(context: &Context, name: &LineName, pause: Duration) -> Result<(), Failure> {
    let zone = ZoneLines::open_to_read(context).await?;
    zone.say_defaults(std::slice::from_ref(name));
    let line = zone.line(name)?;
    let (feed, sink, heard) = Feed::new();
    let end = CancellationToken::new();
    let channels = vec![(FeedChannel::Line, zone.store.keys().line_events().to_string())];
    let store = zone.store.clone();
    let listening = feed.run(store, channels, sink, end.clone());
    let mut watch = Watch { zone, line, limits: context.limits(), feed: feed.clone(), heard };
    let mut stop = Stop::new()?;
    let looking = watch.go_on(context.json, pause, &mut stop);
    tokio::select! {
        outcome = looking => outcome,
        () = listening => Ok(()),
    }
}

impl Watch {
    async fn go_on(&mut self, as_json: bool, pause: Duration, stop: &mut Stop) -> Result<(), Failure> {
        // What happens from the first read on is counted, where the store lets this user listen.
        if stop.or(self.feed.subscribed()).await.is_none() {
            return Ok(());
        }
        while self.heard.try_recv().is_ok() {}
        loop {
            let Some(round) = stop.or(self.round()).await else { return Ok(()) };
            match round {
                Ok(round) => {
                    view::fresh_screen();
                    round.show(as_json);
                }
                // The store may be what is being watched for: its return shows by itself.
                Err(error) if matches!(error.class(), Class::Store) => {
                    view::print_failure(as_json, &error.to_string());
                }
                Err(error) => return Err(error.into()),
            }
            if stop.within(pause).await {
                return Ok(());
            }
        }
    }

    async fn round(&mut self) -> Result<Round> {
        self.zone.store.sync_clock().await?;
        let mut doubts = Doubts::default();
        let admitters = standing::admitters(&self.zone.store, &self.zone.verifier, self.limits, &mut doubts).await?;
        let standing = Standing::of(&self.zone, &self.line, &admitters).await?;
        let mut heard = if self.feed.is_live() { Heard::NOTHING } else { Heard::GAP };
        while let Ok(item) = self.heard.try_recv() {
            match item {
                FeedItem::Message(_, bytes) => {
                    if let Some(event) = LineEvent::read(&bytes) {
                        heard.take(&event, self.line.name());
                    }
                }
                FeedItem::Gap | FeedItem::Down => heard = Heard::GAP,
            }
        }
        Ok(Round {
            zone: self.zone.store.keys().zone().to_string(),
            as_of: self.zone.store.clock().now_ms(),
            standing,
            heard,
        })
    }
}

impl Round {
    fn show(&self, as_json: bool) {
        if as_json {
            return view::json(self);
        }
        if view::is_screen() {
            self.standing.print(self.as_of);
        }
        view::line(&self.line());
    }

    /// One line of words.
    fn line(&self) -> String {
        let standing = &self.standing;
        let heard = |count: Option<u64>| count.map_or_else(|| "?".to_owned(), |count| count.to_string());
        format!(
            "{} {} waiting {}  away {}  admitted {}  left {}  pace {}  rate {}  estimate {}  gate {}  admitters {}",
            view::clock(self.as_of),
            standing.line,
            standing.waiting,
            standing.away,
            heard(self.heard.admitted),
            heard(self.heard.left),
            standing.admitted_text(),
            standing.rate_text(),
            standing.estimate_text(),
            standing.gate_text(self.as_of).0,
            standing.admitters_text().0,
        )
    }
}
