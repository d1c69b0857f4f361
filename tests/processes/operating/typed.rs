//! Every redis-cli command of the document, typed into a store with a live fleet.

use std::collections::BTreeSet;

use redis::Value;

use super::document::{Typed, fits, patterns, typed};
use super::fleet::Fleet;
use crate::fixtures::agents::ZONE;

/// What changes something, and stands in a block to be typed all the same.
const NOT_READING: [&str; 1] = ["ACL SETUSER"];
/// Asked by whoever may do everything.
const OF_ADMINS: [&str; 2] = ["ACL", "CONFIG"];

/// The words with the placeholders of the document filled in.
fn filled(typed: &Typed, now: u64, epoch: u64) -> Vec<String> {
    let fill = |word: &String| {
        word.replace("<now-3500>", &(now - 3_500).to_string())
            .replace("<now>", &now.to_string())
            .replace("proxy-1:1796000000000", &format!("proxy-1:{epoch}"))
    };
    typed.words.iter().map(fill).collect()
}

/// The name of the key in a word, without the zone; channels likewise.
fn name_in(word: &str) -> Option<String> {
    word.strip_prefix(&format!("maitred:{{{ZONE}}}:")).map(str::to_owned)
}

// OBS-2: a command that is not real costs whoever types it at three in the morning their trust in the rest.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn obs_2_every_command_of_the_document_reads_a_live_fleet_and_names_keys_that_exist() {
    let fleet = Fleet::start().await;
    fleet.live().await;
    let now = fleet.proxy.agent().store().clock().now_ms();
    let epoch = fleet.proxy.agent().lease().epoch().0;
    let (mut reader, mut admin) = (fleet.conn("maitred-reader").await, fleet.server.conn().await);
    let patterns = patterns();
    let mut names = BTreeSet::new();
    let mut ran = 0;
    for typed in typed() {
        let words = filled(&typed, now, epoch);
        if NOT_READING.contains(&words[..words.len().min(2)].join(" ").as_str()) {
            continue;
        }
        for name in words.iter().filter_map(|word| name_in(word)).filter(|name| name != "*") {
            assert!(patterns.iter().any(|pattern| fits(pattern, &name)), "{}: no key is called {name}", typed.at);
            if !name.starts_with("events:") {
                assert!(fleet.has(&name).await, "{}: {name} is not there, so nobody knows its type", typed.at);
            }
            names.insert(name);
        }
        let conn = if OF_ADMINS.contains(&typed.command()) { &mut admin } else { &mut reader };
        let answer: redis::RedisResult<Value> = if typed.command() == "SUBSCRIBE" {
            listens(&fleet, &words[1]).await
        } else {
            redis::cmd(&words[0]).arg(&words[1..]).query_async(conn).await
        };
        answer.unwrap_or_else(|error| panic!("{}: {}: {error}", typed.at, words.join(" ")));
        ran += 1;
    }
    assert!(ran > 60 && names.len() > 25, "{ran} commands, {names:?}");
}

/// A connection that subscribes is good for nothing else.
async fn listens(fleet: &Fleet, channel: &str) -> redis::RedisResult<Value> {
    let mut conn = fleet.conn("maitred-reader").await;
    redis::cmd("SUBSCRIBE").arg(channel).query_async(&mut conn).await
}
