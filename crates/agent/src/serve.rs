//! Which shares are served: those that were named, or all that are mounted now and later.
//!
//! Each share has a thread of its own, since the daemon recognises a thread. What the threads, the mount table and
//! standard input have to say arrives in one loop, [`Service::run`].

use std::{
    collections::HashMap,
    io,
    io::Write as _,
    path::{Path, PathBuf},
    sync::{
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

use rustix::io::Errno;

use crate::{
    channel::{self, Channel, End},
    replay,
    shares::{self, Device, MountTable},
};

/// Whether the threads are to end before their next exchange.
static IS_ENDING: AtomicBool = AtomicBool::new(false);

/// How often a thread's exchange is woken until the thread has ended, and how long each time may take.
const WAKES_MAX: usize = 25;
const WAKE_WAIT: Duration = Duration::from_millis(20);

/// How long a thread waits before it asks again for something that the daemon was short of.
const AGAIN_AFTER: Duration = Duration::from_millis(100);

/// How long until shares that were refused are tried again, whose agent may be gone by then or whose daemon be back.
const REFUSED_AGAIN_AFTER: Duration = Duration::from_secs(5);

/// What the loop is told.
enum News {
    /// A share is registered.
    Ready(Device),
    /// A share's thread has ended.
    Ended(Device, End),
    /// Something was mounted or unmounted.
    Mounts,
    /// Standard input has ended.
    End,
}

/// A share with a thread.
struct Served {
    mount: PathBuf,
    is_ready: bool,
}

struct Service {
    sender: mpsc::Sender<News>,
    news: mpsc::Receiver<News>,
    served: HashMap<Device, Served>,
    /// What was last said about a share that cannot be served, so that it is not repeated whenever mounts change.
    refused: HashMap<Device, String>,
    has_said_ready: bool,
}

/// Serves the mounts until standard input ends, if `until_eof`, or until one of them cannot be served any more. Without
/// names, serves all shares that are mounted in this mount namespace, and does not end because of one.
///
/// # Errors
///
/// A mount that was named cannot be served; the mount table cannot be read.
pub(crate) fn serve(named: &[PathBuf], until_eof: bool) -> io::Result<()> {
    let (sender, news) = mpsc::channel();
    let service = Service { sender, news, served: HashMap::new(), refused: HashMap::new(), has_said_ready: false };
    service.run(named, until_eof)
}

impl Service {
    fn run(mut self, named: &[PathBuf], until_eof: bool) -> io::Result<()> {
        if until_eof {
            self.report(|news| {
                let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
                let _ = news.send(News::End);
            })?;
        }
        if named.is_empty() {
            // Before the first look at it, so that nothing is missed.
            let table = MountTable::open()?;
            self.report(move |news| while table.wait().is_ok() && news.send(News::Mounts).is_ok() {})?;
            self.start_new()?;
            if self.served.is_empty() {
                eprintln!("transom-agent: no virtiofs is mounted yet");
            }
        }
        for mount in named {
            let device = shares::device(mount).map_err(|error| of_mount(mount, &error))?;
            // A share may be named by several mounts.
            if !self.served.contains_key(&device) {
                self.start(device, mount.clone())?;
            }
        }
        loop {
            self.say_ready()?;
            let news = match self.refused.is_empty() {
                // The sender is kept here, so there is always one.
                true => self.news.recv().map_err(io::Error::other)?,
                // As if something was mounted.
                false => self.news.recv_timeout(REFUSED_AGAIN_AFTER).unwrap_or(News::Mounts),
            };
            match news {
                News::Ready(device) => {
                    self.refused.remove(&device);
                    if let Some(served) = self.served.get_mut(&device) {
                        served.is_ready = true;
                    }
                }
                News::Ended(device, end) => self.ended(device, &end, !named.is_empty())?,
                News::Mounts => self.start_new()?,
                News::End => {
                    self.end();
                    return Ok(());
                }
            }
        }
    }

    /// Starts a thread that reports.
    fn report(&self, run: impl FnOnce(mpsc::Sender<News>) + Send + 'static) -> io::Result<()> {
        let news = self.sender.clone();
        thread::Builder::new().spawn(move || run(news)).map(drop)
    }

    /// Starts to serve each mounted share that is not served. One that was refused may be possible by now.
    fn start_new(&mut self) -> io::Result<()> {
        let mounted = shares::mounted()?;
        self.refused.retain(|device, _| mounted.iter().any(|(mounted, _)| mounted == device));
        for (device, mount) in mounted {
            if !self.served.contains_key(&device) {
                self.start(device, mount)?;
            }
        }
        Ok(())
    }

    fn start(&mut self, device: Device, mount: PathBuf) -> io::Result<()> {
        let path = mount.clone();
        self.report(move |news| {
            // The receiver lives as long as the process.
            let end = serve_one(&path, || drop(news.send(News::Ready(device))));
            let _ = news.send(News::Ended(device, end));
        })?;
        self.served.insert(device, Served { mount, is_ready: false });
        Ok(())
    }

    /// Takes note that a share is not served any more. Errors: it was named.
    fn ended(&mut self, device: Device, end: &End, are_named: bool) -> io::Result<()> {
        let Some(served) = self.served.remove(&device) else { return Ok(()) };
        let error = match end {
            End::Unmounted => io::Error::other("it was unmounted"),
            End::Failed(error) => io::Error::new(error.kind(), error.to_string()),
        };
        let error = of_mount(&served.mount, &error);
        if are_named {
            return Err(error);
        }
        match end {
            // It may be mounted again by now, which was no news while it was still served.
            End::Unmounted => return self.start_new(),
            End::Failed(_) => {
                let text = error.to_string();
                if self.refused.get(&device) != Some(&text) {
                    eprintln!("transom-agent: {text}");
                    self.refused.insert(device, text);
                }
            }
        }
        Ok(())
    }

    /// Says once that all shares are served which can be.
    fn say_ready(&mut self) -> io::Result<()> {
        if !self.has_said_ready && !self.served.is_empty() && self.served.values().all(|served| served.is_ready) {
            println!("ready");
            io::stdout().flush()?;
            self.has_said_ready = true;
        }
        Ok(())
    }

    /// Ends the threads of the shares. While one waits for its daemon, nothing could kill it.
    fn end(&mut self) {
        IS_ENDING.store(true, Ordering::SeqCst);
        for _ in 0..WAKES_MAX {
            for served in self.served.values() {
                // Another share may be left.
                let _ = channel::wake(&served.mount);
            }
            while !self.served.is_empty() {
                match self.news.recv_timeout(WAKE_WAIT) {
                    Ok(News::Ended(device, _)) => drop(self.served.remove(&device)),
                    Ok(News::Ready(_) | News::Mounts | News::End) => {}
                    Err(_) => break,
                }
            }
            if self.served.is_empty() {
                return;
            }
        }
    }
}

/// Serves one mount; returns why that ended.
fn serve_one(mount: &Path, ready: impl FnOnce()) -> End {
    let mut channel = match Channel::open(mount) {
        Ok(channel) => channel,
        Err(error) => return End::Failed(error),
    };
    let mut ready = Some(ready);
    loop {
        if IS_ENDING.load(Ordering::SeqCst) {
            return End::Failed(io::Error::from(io::ErrorKind::Interrupted));
        }
        match channel.exchange(replay::replay) {
            Ok(()) => {}
            Err(End::Failed(error)) if is_shortage(&error) => {
                thread::sleep(AGAIN_AFTER);
                continue;
            }
            Err(end) => return end,
        }
        if let Some(ready) = ready.take() {
            ready();
        }
    }
}

/// Returns whether the daemon or the kernel is short of something that others give back: a thread that may wait, which
/// waits for locks take as well (ENOLCK), or memory.
fn is_shortage(error: &io::Error) -> bool {
    let shortages = [Errno::NOLCK, Errno::AGAIN, Errno::NOMEM];
    Errno::from_io_error(error).is_some_and(|errno| shortages.contains(&errno))
}

fn of_mount(mount: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", mount.display()))
}
