use serde::Serialize;

use maitred::error::Result;
use maitred::ids::{LineName, NodeId, Role};
use maitred::node::{ADMITS_LABEL, Liveness, LivenessLimits, NodeRecord, roster};
use maitred::queue::Line;
use maitred::store::{Store, Verifier};

use super::super::doubt::Doubts;
use super::super::view::{self, Tone};
use super::known::{Kind, ZoneLines};

/// A line as it stands.
#[derive(Debug, Serialize)]
pub(super) struct Standing {
    pub line: LineName,
    pub kind: Kind,
    pub configured: bool,
    pub waiting: u64,
    pub away: u64,
    pub lanes: Vec<Lane>,
    /// An operator stopped the serving, of a wait line too.
    pub paused: bool,
    pub paused_at: Option<u64>,
    pub gate: Option<Gate>,
    /// Measured while players waited; none where nobody was admitted then.
    pub admitted_per_s: Option<f64>,
    /// How long the last of the longest lane waits, in ms.
    pub estimate_ms: Option<u64>,
    pub admitters: Vec<NodeId>,
    #[serde(skip)]
    pub serial: u64,
}

#[derive(Debug, Serialize)]
pub(super) struct Lane {
    pub weight: u32,
    pub waiting: u64,
}

#[derive(Debug, Serialize)]
pub(super) struct Gate {
    pub paused: bool,
    pub paused_at: Option<u64>,
    /// Per second, now.
    pub rate: u64,
    /// The rate is the config's; else it goes by the number of live nodes.
    pub fixed: bool,
    /// Admissions that the bucket held at its last use.
    pub open: u64,
    #[serde(skip)]
    pub per_node: u32,
    #[serde(skip)]
    pub counted: Role,
}

impl Standing {
    /// Looks at one line. `admitters` are those of the zone.
    pub async fn of(zone: &ZoneLines, line: &Line, admitters: &[Admits]) -> Result<Self> {
        let (options, name) = (line.options(), line.name());
        let seen = line.view().await?;
        let row = zone.store.row(zone.store.keys().gate(name)).await?;
        let kind = Kind::of(name);
        let paused_at = row.number("paused_at").filter(|_| seen.paused);
        let gate = (kind == Kind::Login).then(|| Gate {
            paused: seen.paused,
            paused_at,
            rate: seen.rate,
            fixed: options.gate.fixed_per_second.is_some(),
            open: seen.open,
            per_node: options.gate.per_backend,
            counted: options.gate.counted.clone(),
        });
        // Without a measured admission the library answers with the gate's rate, which is what may be, not what is.
        let measured = seen.waiting > 0 && !row.text("recent").is_empty();
        #[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
        let admitted_per_s = measured.then(|| seen.admitted_per_1000_s as f64 / 1_000.0);
        let stands = seen.paused || kind == Kind::Wait || seen.waiting == 0;
        let lanes = options.lanes.iter().zip(&seen.lanes);
        Ok(Self {
            line: name.clone(),
            kind,
            configured: zone.is_configured(name),
            waiting: seen.waiting,
            away: seen.away,
            lanes: lanes.map(|(weight, waiting)| Lane { weight: *weight, waiting: *waiting }).collect(),
            paused: seen.paused,
            paused_at,
            gate,
            admitted_per_s,
            estimate_ms: seen.estimate_ms.filter(|_| !stands),
            admitters: admitters.iter().filter(|one| one.admits(name)).map(|one| one.id.clone()).collect(),
            serial: seen.serial,
        })
    }

    pub fn lanes_text(&self) -> String {
        if let [_] = self.lanes.as_slice() {
            return "1".to_owned();
        }
        self.lanes.iter().map(|lane| format!("{}:{}", lane.weight, lane.waiting)).collect::<Vec<_>>().join(" ")
    }

    pub fn rate_text(&self) -> String {
        match &self.gate {
            None => "-".to_owned(),
            Some(gate) if gate.fixed => format!("{}/s", gate.rate),
            Some(gate) => format!("{}/s ({}/s a {})", gate.rate, gate.per_node, gate.counted),
        }
    }

    pub fn admitted_text(&self) -> String {
        self.admitted_per_s.map_or_else(|| "-".to_owned(), |rate| format!("{rate:.1}/s"))
    }

    pub fn estimate_text(&self) -> String {
        self.estimate_ms.map_or_else(|| "-".to_owned(), view::ago)
    }

    /// The gate in words: `open`, `paused 3 min`, `shut` where the rate is 0.
    pub fn gate_text(&self, now_ms: u64) -> (String, Tone) {
        if self.paused {
            let since = self.paused_at.map(|at| format!(" {}", view::ago(now_ms.saturating_sub(at))));
            return (format!("paused{}", since.unwrap_or_default()), Tone::Bad);
        }
        match &self.gate {
            None => ("none: places of backends".to_owned(), Tone::Dim),
            Some(gate) if gate.rate == 0 => (format!("shut: no live {}", gate.counted), Tone::Bad),
            Some(_) => ("open".to_owned(), Tone::Good),
        }
    }

    pub fn admitters_text(&self) -> (String, Tone) {
        if self.kind == Kind::Wait {
            return ("-".to_owned(), Tone::Dim);
        }
        if self.admitters.is_empty() {
            return ("nobody".to_owned(), Tone::Warn);
        }
        (self.admitters.iter().map(NodeId::as_str).collect::<Vec<_>>().join(" "), Tone::Plain)
    }
}

/// A proxy that takes part in the admission, by its own row.
#[derive(Debug)]
pub(super) struct Admits {
    id: NodeId,
    lines: String,
}

impl Admits {
    fn admits(&self, name: &LineName) -> bool {
        self.lines.split(' ').any(|line| line == name.as_str())
    }
}

/// The proxies of the zone that admit, as far as their rows are fresh. Rows that do not verify go into `doubts`.
pub(super) async fn admitters(
    store: &Store,
    verifier: &Verifier,
    limits: LivenessLimits,
    doubts: &mut Doubts,
) -> Result<Vec<Admits>> {
    let mut found = Vec::new();
    for (_, ids) in roster::rosters_of(store, &[Role::proxy()]).await? {
        let ids: Vec<NodeId> = ids.into_iter().map(|(id, _)| id).collect();
        for (id, row) in ids.iter().zip(roster::rows_of(store, &ids).await?) {
            if row.as_ref().is_ok_and(maitred::store::Row::is_empty) {
                continue;
            }
            match row.and_then(|row| NodeRecord::from_row(verifier, id, &row)) {
                Ok(record) => {
                    let age_ms = store.clock().now_ms().saturating_sub(record.sent_at_ms);
                    let fresh = matches!(limits.judge(age_ms), Liveness::Online | Liveness::Suspect);
                    let lines = record.labels.get(ADMITS_LABEL).filter(|_| fresh);
                    found.extend(lines.map(|lines| Admits { id: record.id.clone(), lines: lines.clone() }));
                }
                Err(error) => doubts.add(format!("node:{id}"), &error),
            }
        }
    }
    found.sort_by(|a, b| a.id.cmp(&b.id));
    Ok(found)
}
