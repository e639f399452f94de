//! Programs and waits with a deadline, so that a hang fails its test and says what was seen so far.

use std::{
    io::Read,
    process::{Child, Command, ExitStatus, Output, Stdio},
    sync::{Arc, Mutex},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

/// Well above what anything here takes on a busy machine, so that only what hangs reaches it.
pub(crate) const LIMIT: Duration = Duration::from_secs(400);

/// Bytes that a thread reads.
struct Reader {
    bytes: Arc<Mutex<Vec<u8>>>,
    thread: JoinHandle<()>,
}

impl Reader {
    fn start(mut from: impl Read + Send + 'static) -> Self {
        let bytes = Arc::new(Mutex::new(Vec::new()));
        let to = Arc::clone(&bytes);
        let thread = thread::spawn(move || {
            let mut chunk = [0; 4096];
            while let Ok(len @ 1..) = from.read(&mut chunk) {
                to.lock().unwrap().extend_from_slice(&chunk[..len]);
            }
        });
        Self { bytes, thread }
    }

    fn so_far(&self) -> String {
        String::from_utf8_lossy(&self.bytes.lock().unwrap()).into_owned()
    }
}

/// Runs a program to its end and returns its output.
#[track_caller]
pub(crate) fn output(command: &mut Command) -> Output {
    let shown = format!("{command:?}");
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let readers = [Reader::start(child.stdout.take().unwrap()), Reader::start(child.stderr.take().unwrap())];
    let seen = || format!("{shown}: {:?}", [readers[0].so_far(), readers[1].so_far()]);
    let status = end(&mut child, seen);
    // What it has left running may keep the pipes open.
    until(seen, || readers.iter().all(|reader| reader.thread.is_finished()).then_some(()));
    let [stdout, stderr] = readers.map(|reader| reader.bytes.lock().unwrap().clone());
    Output { status, stdout, stderr }
}

/// Waits for the end of a program, and kills it if it does not come.
#[track_caller]
pub(crate) fn end(child: &mut Child, seen: impl Fn() -> String) -> ExitStatus {
    let begun = Instant::now();
    while begun.elapsed() < LIMIT {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        thread::sleep(Duration::from_millis(5));
    }
    let _ = child.kill();
    panic!("it has not ended within {LIMIT:?}: {}", seen());
}

/// Waits until `look` returns something.
#[track_caller]
pub(crate) fn until<T>(seen: impl Fn() -> String, mut look: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begun.elapsed() < LIMIT, "not within {LIMIT:?}: {}", seen());
        thread::sleep(Duration::from_millis(5));
    }
}
