//! The moving part of the fault proxy: accepts, and pumps bytes both ways between a client and the store.

use std::io;
use std::net::TcpListener as StdListener;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::fault::{Shared, Verdict};
use crate::lane::{Lane, Settled, labels};
use crate::resp::{self, Malformed};

/// Chunks of replies that may wait for their delay on one connection; past that the store is no longer read.
const DELAYED_CHUNKS: usize = 4_096;
const CHUNK_BYTES: usize = 64 * 1_024;

/// Serves until `stop`; leaving the runtime behind drops every task, and with it every socket.
pub fn run(listener: StdListener, shared: Arc<Shared>, stop: CancellationToken) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("could not build the runtime of the fault proxy");
    runtime.block_on(async {
        let listener = TcpListener::from_std(listener).expect("could not take over the listener");
        tokio::select! {
            () = stop.cancelled() => {}
            () = accept(&listener, &shared) => {}
        }
    });
}

async fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    loop {
        let client = match listener.accept().await {
            Ok((client, _)) => client,
            Err(error) => {
                // Out of file descriptors, or a client that left while it queued: neither ends the proxy.
                eprintln!("fault proxy: could not accept: {error}");
                tokio::time::sleep(Duration::from_millis(10)).await;
                continue;
            }
        };
        let Some((id, cut)) = shared.accepted() else {
            continue;
        };
        let shared = Arc::clone(shared);
        tokio::spawn(async move {
            tokio::select! {
                () = cut.cancelled() => {}
                result = serve(id, client, &shared) => {
                    if let Err(error) = result && error.kind() == io::ErrorKind::InvalidData {
                        eprintln!("fault proxy: closed connection {id}: {error}");
                    }
                }
            }
            shared.closed(id);
        });
    }
}

async fn serve(id: u64, client: TcpStream, shared: &Shared) -> io::Result<()> {
    client.set_nodelay(true)?;
    let server = TcpStream::connect(shared.upstream).await?;
    server.set_nodelay(true)?;
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let lane = Mutex::new(Lane::default());
    let (queue, queued) = mpsc::channel(DELAYED_CHUNKS);
    let back = async {
        // The reader ends first and drops its end of the queue; the writer then empties it.
        let (read, written) =
            tokio::join!(replies(id, from_server, queue, &lane, shared), deliver(queued, to_client, shared));
        read.and(written)
    };
    tokio::select! {
        ended = requests(from_client, to_server, &lane, shared) => ended,
        ended = back => ended,
    }
}

async fn flowing(shared: &Shared) {
    // The sender lives in `shared`, so waiting cannot fail while this runs.
    let _ = shared.held.subscribe().wait_for(|held| !held).await;
}

async fn requests(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    lane: &Mutex<Lane>,
    shared: &Shared,
) -> io::Result<()> {
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut partial = Vec::new();
    loop {
        flowing(shared).await;
        let read = from.read(&mut chunk).await?;
        if read == 0 {
            return Ok(());
        }
        flowing(shared).await;
        partial.extend_from_slice(&chunk[..read]);
        let mut parsed = 0;
        while let Some(request) = resp::request(&partial[parsed..]).map_err(invalid)? {
            parsed += request.len;
            let labels = labels(&request.args);
            if !labels.is_empty() {
                shared.count(&labels);
                lane.lock().unwrap_or_else(PoisonError::into_inner).sent(labels, request.args.len());
            }
        }
        partial.drain(..parsed);
        to.write_all(&chunk[..read]).await?;
    }
}

async fn replies(
    id: u64,
    mut from: OwnedReadHalf,
    queue: mpsc::Sender<(Instant, Vec<u8>)>,
    lane: &Mutex<Lane>,
    shared: &Shared,
) -> io::Result<()> {
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut partial = Vec::new();
    let mut silent = false;
    let mut cut = false;
    while !cut {
        let read = from.read(&mut chunk).await?;
        if read == 0 {
            return Ok(());
        }
        partial.extend_from_slice(&chunk[..read]);
        let mut parsed = 0;
        let mut passed = 0;
        let mut lag = Duration::ZERO;
        while let Some(reply) = resp::reply(&partial[parsed..]).map_err(invalid)? {
            parsed += reply.len;
            let settled = lane.lock().unwrap_or_else(PoisonError::into_inner).settle(&reply);
            if let Settled::Answer { labels, push } = settled {
                lag = lag.max(shared.lag(&labels));
                let verdict = shared.judge(id, &labels, push);
                silent |= verdict != Verdict::Forward;
                cut = verdict == Verdict::Cut;
            }
            if cut {
                break;
            }
            if !silent {
                passed = parsed;
            }
        }
        if passed > 0 && queue.send((Instant::now() + shared.delay() + lag, partial[..passed].to_vec())).await.is_err()
        {
            return Ok(());
        }
        partial.drain(..parsed);
    }
    Ok(())
}

async fn deliver(
    mut queued: mpsc::Receiver<(Instant, Vec<u8>)>,
    mut to: OwnedWriteHalf,
    shared: &Shared,
) -> io::Result<()> {
    while let Some((due, bytes)) = queued.recv().await {
        tokio::time::sleep_until(due).await;
        flowing(shared).await;
        to.write_all(&bytes).await?;
    }
    Ok(())
}

fn invalid(Malformed(why): Malformed) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}
