//! What a backend or link does with the pass that a player brings.

use crate::agent::core::Core;
use crate::error::Result;
use crate::queue::{LineOptions, LoginPass, PassRefusal};

use super::line_handle::line;

/// Spends a verified pass, once. A call that is repeated after an outcome that is not known gives the definite answer.
pub(in crate::agent) async fn redeem(core: &Core, pass: &LoginPass) -> Result<Result<(), PassRefusal>> {
    let me = core.acting()?;
    let config = core.config();
    let options = match config.lines.get(&pass.line) {
        Some(line) => line.options(&pass.line),
        None => LineOptions::new(pass.line.clone()),
    };
    let line = line(core, options)?.counting(core.arrivals.clone());
    let redemption = core.redemptions.begin(pass).await;
    let redeemed = line.redeem(&me, pass, &redemption.op).await?;
    redemption.settled();
    Ok(redeemed)
}
