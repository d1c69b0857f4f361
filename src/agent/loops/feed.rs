//! What the subscription brings.

use std::sync::Arc;

use tokio::sync::mpsc;

use crate::agent::core::{Core, LineHint, TokenHint};
use crate::queue::LineEvent;
use crate::store::{FeedChannel, FeedItem};
use crate::token::TokenEvent;

/// What an agent listens to.
pub(in crate::agent) fn channels(core: &Core) -> Vec<(FeedChannel, String)> {
    let keys = core.store.keys();
    let mut channels = vec![
        (FeedChannel::Control, keys.control_events().to_string()),
        (FeedChannel::Token, keys.token_events().to_string()),
        (FeedChannel::Inbox, keys.inbox(&core.identity.id).to_string()),
    ];
    if core.hears_beats {
        channels.push((FeedChannel::Node, keys.node_events().to_string()));
    }
    if core.hears_lines {
        channels.push((FeedChannel::Line, keys.line_events().to_string()));
    }
    channels
}

/// Takes what the subscription brings to whom it concerns.
pub(in crate::agent) async fn route(core: Arc<Core>, mut items: mpsc::Receiver<FeedItem>) {
    loop {
        let item = tokio::select! {
            () = core.stop.cancelled() => return,
            item = items.recv() => item,
        };
        match item {
            None => return,
            Some(FeedItem::Down) => {}
            Some(FeedItem::Gap) => {
                core.refresh_now.notify_one();
                hint(&core, TokenHint::Gap);
                line_hint(&core, LineHint::Gap);
                core.refresh_control().await;
            }
            Some(FeedItem::Message(channel, bytes)) => match channel {
                FeedChannel::Inbox => core.inbox.take(bytes),
                FeedChannel::Control => core.refresh_control().await,
                FeedChannel::Node => {
                    if let Err(error) = core.directory.on_event(&bytes).await {
                        tracing::debug!(%error, "could not look at a node again");
                    }
                }
                FeedChannel::Token => {
                    if let Some(event) = TokenEvent::read(&bytes) {
                        hint(&core, TokenHint::Event(event));
                    }
                }
                FeedChannel::Line => {
                    if let Some(event) = LineEvent::read(&bytes) {
                        line_hint(&core, LineHint::Event(event));
                    }
                }
            },
        }
    }
}

fn hint(core: &Core, hint: TokenHint) {
    // No listener: a proxy has no use for it.
    let _ = core.token_events.send(hint);
}

fn line_hint(core: &Core, hint: LineHint) {
    // No listener: no line is in use here.
    let _ = core.line_events.send(hint);
}
