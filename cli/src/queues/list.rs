use serde::Serialize;

use super::super::Failure;
use super::super::context::Context;
use super::super::doubt::Doubts;
use super::super::view::{self, Grid, Tone};
use super::ListOptions;
use super::known::{Kind, ZoneLines, is_of_one_line};
use super::standing::{self, Standing};

#[derive(Debug, Serialize)]
struct Listed {
    zone: String,
    as_of: u64,
    lines: Vec<Standing>,
    not_believed: Doubts,
}

/// Shows every line of the zone.
pub(crate) async fn run(context: &Context, ListOptions {}: ListOptions) -> Result<(), Failure> {
    let zone = ZoneLines::open_to_read(context).await?;
    let names = zone.names().await?;
    zone.say_defaults(&names);
    let mut not_believed = Doubts::default();
    let admitters = standing::admitters(&zone.store, &zone.verifier, context.limits(), &mut not_believed).await?;
    let mut lines = Vec::new();
    for name in &names {
        match Standing::of(&zone, &zone.line(name)?, &admitters).await {
            Ok(standing) => lines.push(standing),
            Err(error) if is_of_one_line(&error) => not_believed.add(format!("line:{name}"), &error),
            Err(error) => return Err(error.into()),
        }
    }
    let listed =
        Listed { zone: zone.store.keys().zone().to_string(), as_of: zone.store.clock().now_ms(), lines, not_believed };
    if context.json {
        view::json(&listed);
    } else {
        listed.print();
    }
    Ok(())
}

impl Listed {
    fn print(&self) {
        if !self.lines.is_empty() {
            let heads = ["LINE", "WAITING", "AWAY", "GATE", "RATE", "ADMITTED", "ESTIMATE", "LANES", "ADMITTERS"];
            let mut grid = Grid::new(&heads).optional(2);
            for line in &self.lines {
                grid.row(line.cells(self.as_of));
            }
            grid.print();
        }
        let (waiting, away) = self.lines.iter().fold((0_u64, 0_u64), |(waiting, away), line| {
            (waiting.saturating_add(line.waiting), away.saturating_add(line.away))
        });
        let players = if waiting == 1 { "1 player waits".to_owned() } else { format!("{waiting} players wait") };
        let lines = view::counted(self.lines.len(), "line");
        view::line(&format!("zone {}: {lines}; {players}, {away} away", self.zone));
        self.not_believed.lines().iter().for_each(|line| view::line(line));
    }
}

impl Standing {
    fn cells(&self, now_ms: u64) -> [(String, Tone); 9] {
        let tone = if self.waiting == 0 { Tone::Dim } else { Tone::Plain };
        let kind = if self.kind == Kind::Wait { Tone::Dim } else { Tone::Plain };
        [
            (self.line.to_string(), kind),
            (self.waiting.to_string(), tone),
            (self.away.to_string(), Tone::Plain),
            self.gate_text(now_ms),
            (self.rate_text(), Tone::Plain),
            (self.admitted_text(), Tone::Plain),
            (self.estimate_text(), Tone::Plain),
            (self.lanes_text(), Tone::Dim),
            self.admitters_text(),
        ]
    }
}
