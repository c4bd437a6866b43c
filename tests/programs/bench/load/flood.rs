//! A flood of connections: as fast as a client that pays no attention to the answers.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use postonce_tests::wait;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;

use super::on_own_thread;

/// Tasks that connect, one connection at a time.
const TASKS: usize = 64;
/// Pause of a task between two connections, so that the machine is not only busy with connecting.
const PAUSE: Duration = Duration::from_millis(10);
/// Address of the clients of the flood. Other clients have another one.
pub const SOURCE: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));

/// What is done with the connections of a flood.
#[derive(Debug, Clone, Copy)]
pub enum Connections {
    /// Each is kept open until the same task has opened this number of later ones.
    Kept(usize),
    /// Each is read until the server closes it.
    Read,
}

/// Opens connections and sends the same bytes on each, until `is_over`. Returns their number.
pub async fn connections(
    address: SocketAddr,
    head: String,
    then: Connections,
    is_over: Arc<AtomicBool>,
) -> u64 {
    on_own_thread(async move || {
        let (head, mut tasks) = (Rc::new(head), JoinSet::new());
        for _ in 0..TASKS {
            let (head, is_over) = (Rc::clone(&head), Arc::clone(&is_over));
            tasks.spawn_local(async move {
                let (mut kept, mut opened) = (VecDeque::new(), 0_u64);
                while !is_over.load(Ordering::Relaxed) {
                    // What fails, fails: a flood does not stop for that.
                    if let Ok(mut stream) = connect(address).await
                        && stream.write_all(head.as_bytes()).await.is_ok()
                    {
                        opened = opened.saturating_add(1);
                        match then {
                            Connections::Kept(count) => {
                                kept.push_back(stream);
                                if kept.len() > count {
                                    drop(kept.pop_front());
                                }
                            }
                            Connections::Read => drop(stream.read_to_end(&mut Vec::new()).await),
                        }
                    }
                    wait::pass(PAUSE).await;
                }
                opened
            });
        }
        tasks.join_all().await.into_iter().fold(0, u64::saturating_add)
    })
    .await
}

async fn connect(address: SocketAddr) -> std::io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.bind(SocketAddr::new(SOURCE, 0))?;
    socket.connect(address).await
}
