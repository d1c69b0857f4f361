use crate::Failure;
use maitred::error::{Error, Result};
use maitred::ids::Player;
use maitred::store::Store;

use super::calls::{Life, payload};
use super::figure::Figure;
use super::stage::Stage;

/// Long enough that nothing expires while it is measured.
const TTL_MS: u64 = 30_000;
/// A payload that an application with much to say hands over, in bytes.
const LARGE_BYTES: usize = 500;

/// Memory of the row of a claimed token, against the bytes of its key, names and values. No figure where the server
/// does not tell.
pub(super) async fn measure(stage: &Stage) -> Result<Vec<Figure>, Failure> {
    let mut figures = Vec::new();
    for bytes in [payload(0).len(), LARGE_BYTES] {
        let life = Life::fresh()?;
        for call in [life.issue_with(stage, TTL_MS, &payload(bytes)), life.claim_call(stage)] {
            let answer = stage.store.run(&call).await?;
            if !["ISSUED", "CLAIMED"].contains(&answer.word()) {
                return Err(answer.unexpected().into());
            }
        }
        let (used, text) = match usage(&stage.store, &life.player).await {
            Ok(sizes) => sizes,
            Err(Error::Refused { .. }) => continue,
            Err(error) => return Err(error.into()),
        };
        figures.extend(Figure::of(format!("row of a token, payload {bytes} bytes"), "bytes", &[used], &[text]));
    }
    Ok(figures)
}

/// What the row takes in the server, and what its key and texts have.
async fn usage(store: &Store, player: &Player) -> Result<(f64, f64)> {
    let key = store.keys().token(player);
    // Every value is weighed: by default the server guesses from five of them.
    let answer = store.bare_command(&["MEMORY", "USAGE", &key.to_string(), "SAMPLES", "0"]).await?;
    let used = answer
        .parse()
        .map_err(|_| Error::Protocol { during: "MEMORY USAGE", detail: format!("{answer:?} is not a number") })?;
    let row = store.row(key).await?;
    let text = key.to_string().len() + row.fields().map(|(name, value)| name.len() + value.len()).sum::<usize>();
    Ok((used, u32::try_from(text).map(f64::from).unwrap_or(f64::MAX)))
}
