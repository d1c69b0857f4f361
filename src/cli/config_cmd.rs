use clap::Args;

use super::Failure;
use super::context::Context;

/// Options of this command.
#[derive(Debug, Args)]
pub(super) struct Options {}

pub(super) async fn run(_context: &Context, _options: Options) -> Result<(), Failure> {
    Err(Failure::Usage("this command is not in this build".to_owned()))
}
