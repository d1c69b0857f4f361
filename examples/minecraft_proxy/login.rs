//! A client that wants to play: a backend for it, the bytes it sent, and then everything both ways.

use std::io;
use std::time::Duration;

use maitred::agent::{Outcome, ProxyAgent};
use maitred::ids::Player;
use maitred::place::{Decision, Placed, PlacementHandler, ServerView, Unplaced, Why};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::frame::{Inlet, text_frame};
use super::pass;

/// Longest look for a place that waits for the player already. A store that is away keeps nobody out for longer.
const TAKE_MAX: Duration = Duration::from_secs(3);
/// Longest wait for a client to read why it was refused.
const GOODBYE_MAX: Duration = Duration::from_secs(2);

/// Serves one login to its end, or until `stop`.
pub async fn serve(
    proxy: &ProxyAgent,
    player: &Player,
    mut inlet: Inlet,
    mut client: TcpStream,
    stop: &CancellationToken,
) -> io::Result<()> {
    let gone = CancellationToken::new();
    let placed = {
        let placing = find(proxy, player, &gone);
        tokio::pin!(placing);
        tokio::select! {
            biased;
            placed = &mut placing => placed,
            fault = inlet.gone(&mut client) => {
                tracing::info!(%player, %fault, "gave the login up");
                // Ends at once, with every socket closed that it had opened.
                gone.cancel();
                let _ = placing.await;
                return Ok(());
            }
        }
    };
    let backend = match placed {
        Ok(Placed { stream, registration, .. }) => {
            tracing::info!(%player, %registration, "connected");
            stream
        }
        Err(unplaced) => return refuse(&mut client, &proxy.refusal_text(&unplaced)).await,
    };
    // From the first byte on this is the player's backend, whatever becomes of it: the same login at a second one would
    // be a second session.
    tokio::select! {
        () = stop.cancelled() => Ok(()),
        passed = pass::both_ways(inlet, client, backend) => passed,
    }
}

/// The place that waits for the player, else one of a fresh login.
async fn find(proxy: &ProxyAgent, player: &Player, gone: &CancellationToken) -> Result<Placed, Unplaced> {
    if let Ok(Outcome::Transfer(transfer)) = timeout(TAKE_MAX, proxy.take(player)).await {
        match proxy.connect(&transfer, gone).await {
            Ok(placed) => return Ok(placed),
            Err(unplaced) => {
                tracing::info!(%player, %unplaced, "the place that waited cannot be reached");
                if let Err(error) = proxy.failed(&transfer, "unreachable").await {
                    tracing::warn!(%player, %error, "could not release; the token expires");
                }
                if unplaced.why == Why::PlayerGone {
                    return Err(unplaced);
                }
            }
        }
    }
    proxy.place(player, gone).await
}

/// Login Disconnect: the client shows `text` and ends.
async fn refuse(client: &mut (impl AsyncRead + AsyncWrite + Unpin), text: &str) -> io::Result<()> {
    let component = serde_json::json!({ "text": text }).to_string();
    timeout(GOODBYE_MAX, client.write_all(&text_frame(0, &component))).await??;
    client.shutdown().await?;
    // A socket that is closed with something unread in it is reset, and the text with it.
    let mut rest = [0; 256];
    let reading = async { while matches!(client.read(&mut rest).await, Ok(1..)) {} };
    let _ = timeout(GOODBYE_MAX, reading).await;
    Ok(())
}

/// Spreads players over the backends by their names, so that each comes back to the same one; the others follow in case
/// it cannot be reached.
pub struct Spread {
    /// The names to choose from.
    pub servers: Vec<String>,
}

impl PlacementHandler for Spread {
    async fn place(&self, player: &Player, _view: &ServerView) -> Result<Decision, String> {
        let mut order = self.servers.clone();
        if order.is_empty() {
            return Err("initialRouting.servers is empty".to_owned());
        }
        // FNV-1a: every proxy has to come to the same answer.
        let hash = player
            .as_str()
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
        let first = u64::try_from(order.len()).ok().and_then(|count| usize::try_from(hash % count).ok()).unwrap_or(0);
        order.rotate_left(first);
        Ok(Decision::select_many(order))
    }
}
