//! Everything both ways between a client and its backend, with an end for those who leave without a word.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, split};
use tokio::time::timeout;

use super::frame::Inlet;

/// How long the other side may go on where one has ended.
pub const LINGER_MAX: Duration = Duration::from_secs(5);
/// Longest time in which a side takes what was read at once for it.
pub const WRITE_MAX: Duration = Duration::from_secs(30);
/// Most bytes that are read at once.
const BUFFER_BYTES: usize = 16 * 1_024;

/// Hands on what the client has sent, and from then on everything both ways. Ends when both sides ended, or a while after
/// the first did.
pub async fn both_ways<C, B>(inlet: Inlet, client: C, mut backend: B) -> io::Result<()>
where
    C: AsyncRead + AsyncWrite,
    B: AsyncRead + AsyncWrite + Unpin,
{
    timeout(WRITE_MAX, backend.write_all(inlet.raw())).await??;
    drop(inlet);
    let ((from_client, to_client), (from_backend, to_backend)) = (split(client), split(backend));
    let (up, down) = (one_way(from_client, to_backend), one_way(from_backend, to_client));
    tokio::pin!(up, down);
    tokio::select! {
        ended = &mut up => { ended?; timeout(LINGER_MAX, down).await? }
        ended = &mut down => { ended?; timeout(LINGER_MAX, up).await? }
    }
}

async fn one_way(mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        match from.read(&mut buffer).await? {
            0 => return to.shutdown().await,
            read => timeout(WRITE_MAX, to.write_all(&buffer[..read])).await??,
        }
    }
}
