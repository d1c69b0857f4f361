use std::net::SocketAddr;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Stands between a client and a real store, and changes one text in what the store answers.
pub struct Relay {
    addr: SocketAddr,
    task: tokio::task::JoinHandle<()>,
}

impl Relay {
    pub async fn start(port: u16, from: &'static str, to: &'static str) -> Self {
        assert_eq!(from.len(), to.len(), "the answer keeps its length");
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let addr = listener.local_addr().expect("an address");
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let Ok(store) = TcpStream::connect(("127.0.0.1", port)).await else { continue };
                let ((client_in, client_out), (store_in, store_out)) = (client.into_split(), store.into_split());
                tokio::spawn(copy(client_in, store_out, None));
                tokio::spawn(copy(store_in, client_out, Some((from, to))));
            }
        });
        Self { addr, task }
    }

    pub fn url(&self) -> String {
        format!("redis://{}", self.addr)
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn copy(mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin, change: Option<(&str, &str)>) {
    let mut chunk = vec![0; 65_536];
    while let Ok(read @ 1..) = from.read(&mut chunk).await {
        let bytes = match change {
            Some((old, new)) => replaced(&chunk[..read], old.as_bytes(), new.as_bytes()),
            None => chunk[..read].to_vec(),
        };
        if to.write_all(&bytes).await.is_err() {
            return;
        }
    }
}

fn replaced(bytes: &[u8], old: &[u8], new: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    let places: Vec<usize> =
        bytes.windows(old.len()).enumerate().filter(|(_, window)| *window == old).map(|(at, _)| at).collect();
    for at in places {
        bytes[at..at + new.len()].copy_from_slice(new);
    }
    bytes
}
