use std::io::{BufRead, IsTerminal, Write};
use std::time::Duration;

use serde_json::json;

use maitred::ids::LineName;
use maitred::queue::Line;

use super::super::Failure;
use super::super::context::Context;
use super::super::view;
use super::known::{Kind, ZoneLines};

/// How often the progress of a clear is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// Up to this many players a clear is over before a progress bar is read.
const BAR_FROM: u64 = 1_000;

/// Pauses or resumes a line.
pub(super) async fn pause(context: &Context, name: &LineName, paused: bool) -> Result<(), Failure> {
    let zone = ZoneLines::open(context).await?;
    zone.must_know(name).await?;
    let line = zone.line(name)?;
    if paused {
        line.pause().await?
    } else {
        line.resume().await?
    }
    let seen = line.view().await?;
    if context.json {
        view::json(&json!({ "ok": true, "line": name, "paused": paused, "waiting": seen.waiting }));
    } else {
        let what = match (paused, Kind::of(name)) {
            (false, _) => "resumed",
            (true, Kind::Login) => "paused: nobody is admitted",
            (true, Kind::Wait) => "paused: backends serve nobody from it",
        };
        view::line(&format!("line {name} is {what}; {} waiting", view::counted(seen.waiting, "player")));
    }
    Ok(())
}

/// Puts everybody out of a line.
pub(super) async fn clear(context: &Context, name: &LineName, yes: bool) -> Result<(), Failure> {
    let asks = std::io::stdin().is_terminal() && std::io::stderr().is_terminal() && !context.json;
    if !yes && !asks {
        return Err(Failure::Usage(format!("clear puts everybody out of line {name}: say it again with --yes")));
    }
    let zone = ZoneLines::open(context).await?;
    zone.must_know(name).await?;
    let line = zone.line(name)?;
    let seen = line.view().await?;
    let players = seen.waiting.saturating_add(seen.away);
    if !yes && !confirmed(name, players)? {
        view::line("nothing was done");
        return Err(Failure::Check);
    }
    let report = with_progress(&line, players).await?;
    if context.json {
        view::json(&json!({ "ok": true, "line": name, "out": report.out, "healed": report.healed }));
    } else {
        view::line(&format!("{} put out of line {name}", view::counted(report.out, "player")));
    }
    Ok(())
}

/// Asks on a terminal.
fn confirmed(name: &LineName, players: u64) -> Result<bool, Failure> {
    let mut err = std::io::stderr().lock();
    let question = format!("put {} out of line {name}? [y/N] ", view::counted(players, "player"));
    err.write_all(question.as_bytes()).and_then(|()| err.flush()).map_err(|error| Failure::io("asking", &error))?;
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer).map_err(|error| Failure::io("reading the answer", &error))?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

async fn with_progress(line: &Line, players: u64) -> Result<maitred::queue::LineSweepReport, Failure> {
    let clearing = line.clear();
    if players < BAR_FROM {
        return Ok(clearing.await?);
    }
    let bar = view::progress(players, "putting out");
    tokio::pin!(clearing);
    let report = loop {
        tokio::select! {
            report = &mut clearing => break report,
            () = tokio::time::sleep(LOOK_EVERY) => {
                // Players who enter meanwhile are not counted as put out; a read that fails only leaves the bar where it is.
                if let Ok(seen) = line.view().await {
                    bar.set_position(players.saturating_sub(seen.waiting.saturating_add(seen.away)));
                }
            }
        }
    };
    bar.finish_and_clear();
    Ok(report?)
}
