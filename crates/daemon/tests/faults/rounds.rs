//! One round: a session, one request, one disturbed call, and what has to hold afterwards.

use std::{
    collections::BTreeSet,
    fs, io,
    os::unix::fs::symlink,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use rustix::io::Errno;
use transom_frontend::{
    FrontEnd,
    fuse::{Answer, Failure, Session},
};

use transom_wire::ops::init::InitFlags;

use crate::{
    calls,
    daemon::{Daemon, Held, SETTLES_WITHIN, inodes_of},
    disturber::{Call, Disturbance},
    guest::{Guest, Leavable, Prepared},
    requests::{Gain, Kind},
    share::{self, Picture, SECRET, difference, picture},
};

/// What happens while a call is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Event {
    /// Another queue ends the session.
    Destroy,
    /// The front end closes its connection.
    Leave,
    /// The host moves the file away, ...
    Renamed,
    /// ... removes it, ...
    Removed,
    /// ... or puts a symbolic link out of the share in its place.
    Replaced,
}

/// What a round found.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// The disturbed call, for messages; `None` where the request made fewer calls.
    pub(crate) disturbed: Option<String>,
    /// The call failed, or was held.
    pub(crate) has_effect: bool,
    pub(crate) wrong: Vec<String>,
    /// A request that failed although it was done, which is right, but worth knowing.
    pub(crate) is_done_and_failed: bool,
}

/// Something that changes a directory.
type Step<'a> = &'a dyn Fn(&Path) -> io::Result<()>;

/// A session that is about to send the request.
struct Scene {
    front_end: FrontEnd,
    guest: Guest,
    second: Guest,
    prepared: Prepared,
    has_left: Arc<AtomicBool>,
    /// The descriptors of a daemon with a front end whose guest has nothing yet.
    descriptors: Vec<String>,
    before: Picture,
    held_before: Held,
    /// Of all files that locks may be on.
    inodes: BTreeSet<u64>,
}

impl Scene {
    fn set(daemon: &mut Daemon, kind: &Kind) -> Self {
        let at = daemon.share();
        share::build(&at).unwrap();
        let front_end = daemon.connect();
        let has_left = Arc::default();
        let queue = |number| Session::new(Leavable::new(front_end.start_queue(number).unwrap(), &has_left));
        let (mut guest, second) = (queue(1), queue(2));
        // INIT ends what another session may have left, which its own round has told of.
        guest.init(InitFlags::all()).unwrap();
        // What INIT opened for a moment is no part of it.
        daemon.wait_for_rest(0, || false);
        let descriptors = daemon.descriptors();
        let prepared = Prepared::prepare(&mut guest).unwrap();
        (kind.before)(&mut guest, &prepared).unwrap();
        let (before, inodes) = (picture(&at).unwrap(), inodes_of(&at));
        let held_before = daemon.held_twice(&inodes);
        Self { front_end, guest, second, prepared, has_left, descriptors, before, held_before, inodes }
    }
}

/// Lets call `nth` of a request fail, by its way `way`; lets none fail for `None`.
pub(crate) fn with_failure(daemon: &mut Daemon, kind: &Kind, failure: Option<(usize, usize)>) -> Found {
    let mut scene = Scene::set(daemon, kind);
    daemon.disturber.arm(failure.map_or(Disturbance::None, |(nth, way)| Disturbance::Fail(nth, way)));
    let answer = (kind.send)(&mut scene.guest, &scene.prepared);
    let calls = daemon.disturber.disarm();
    let disturbed = failure.and_then(|(nth, _)| calls.get(nth));
    let errno = disturbed.and_then(|call| call.failed);
    let mut found = Found { disturbed: disturbed.map(told), has_effect: errno.is_some(), ..Found::default() };

    let allowed: Vec<Errno> = errno.into_iter().chain(kind.refusals.iter().copied()).collect();
    found.check_answer(&answer, |errno| allowed.contains(&errno) || is_translation(&allowed, errno));
    found.check_calls(kind, &calls, &answer);
    // A request that failed leaves the guest what it had.
    let gain = answer.as_ref().copied().unwrap_or_default();
    let expected = with_gain(scene.held_before, gain);
    let now = daemon.held_when_settled(&scene.inodes, expected);
    if now != expected {
        found.wrong.push(format!("{now:?} is held, not {expected:?}"));
    }
    found.check_picture(daemon, kind, Some(&answer), &scene.before, None);
    let destroyed = scene.guest.destroy();
    if destroyed.is_err() {
        found.wrong.push(format!("DESTROY: {destroyed:?}"));
    }
    found.check_nothing_held(daemon, &scene.inodes, &scene.descriptors);
    found
}

/// Holds call `nth` of a request until `event` has happened.
pub(crate) fn with_event(daemon: &mut Daemon, kind: &Kind, nth: usize, event: Event) -> Found {
    let Scene { front_end, mut guest, mut second, prepared, has_left, descriptors, before, held_before, inodes } =
        Scene::set(daemon, kind);
    let mut front_end = Some(front_end);
    daemon.disturber.arm(Disturbance::Hold(nth));
    let mut found = Found::default();
    let answered = thread::scope(|scope| {
        let request = scope.spawn(|| (kind.send)(&mut guest, &prepared));
        let waits = |calls: &[Call]| kind.waits && calls.iter().any(is_wait_for_lock);
        let held = daemon.disturber.wait_for_held(|calls| request.is_finished() || waits(calls));
        found.disturbed = held.map(|asked| told(&Call { asked, failed: None }));
        found.has_effect = held.is_some();
        let held_tid = held.map_or(0, |asked| asked.tid);
        match event {
            Event::Destroy => {
                let destroy = scope.spawn(|| second.destroy());
                // A daemon that waits for the request answers when the call goes on.
                daemon.wait_for_rest(held_tid, || destroy.is_finished());
                daemon.disturber.go_on();
                let destroyed = destroy.join().unwrap();
                if destroyed.is_err() {
                    found.wrong.push(format!("DESTROY: {destroyed:?}"));
                }
            }
            Event::Leave => {
                drop(front_end.take());
                daemon.wait_for_rest(held_tid, || false);
                daemon.disturber.go_on();
                has_left.store(true, Relaxed);
            }
            Event::Renamed | Event::Removed | Event::Replaced => {
                change(&daemon.share(), kind.target, event).unwrap();
                daemon.disturber.go_on();
            }
        }
        request.join().unwrap()
    });
    daemon.disturber.disarm();

    let scene = (before, held_before);
    match event {
        Event::Leave => {
            // The daemon is at rest when it takes the next front end.
            let next = daemon.connect();
            let _queues = (next.start_queue(1).unwrap(), next.start_queue(2).unwrap());
            found.check_picture(daemon, kind, None, &scene.0, None);
            found.check_nothing_held(daemon, &inodes, &descriptors);
        }
        Event::Destroy => {
            found.check_answer(&answered, |_| true);
            found.check_picture(daemon, kind, Some(&answered), &scene.0, None);
            found.check_nothing_held(daemon, &inodes, &descriptors);
        }
        _ => {
            found.check_answer(&answered, |_| true);
            found.check_picture(daemon, kind, Some(&answered), &scene.0, Some(event));
            if answered.is_err()
                && let now = daemon.held_when_settled(&inodes, scene.1)
                && now != scene.1
            {
                found.wrong.push(format!("{now:?} is held after a failure, {:?} before", scene.1));
            }
            if let Err(error) = guest.destroy() {
                found.wrong.push(format!("DESTROY: {error}"));
            }
            found.check_nothing_held(daemon, &inodes, &descriptors);
        }
    }
    found
}

impl Found {
    fn check_answer(&mut self, answer: &Answer<Gain>, is_allowed: impl Fn(Errno) -> bool) {
        match answer {
            Ok(_) => {}
            // With ENOSYS, Linux never sends such a request again; numbers from 512 are the kernel's own.
            Err(Failure::Errno(errno))
                if *errno == Errno::NOSYS || errno.raw_os_error() >= 512 || !is_allowed(*errno) =>
            {
                self.wrong.push(format!("it answers {errno:?}"));
            }
            Err(Failure::Errno(_)) => {}
            Err(Failure::Broken(error)) => self.wrong.push(format!("{error:#}")),
        }
    }

    /// Success needs a call that succeeded, of those that the kind needs, where it is one that failed.
    fn check_calls(&mut self, kind: &Kind, calls: &[Call], answer: &Answer<Gain>) {
        let mut needed = calls.iter().filter(|call| kind.needs.contains(&call.asked.number)).peekable();
        if answer.is_ok() && needed.peek().is_some() && needed.all(|call| call.failed.is_some()) {
            self.wrong.push("a success without the call that it needs".into());
        }
    }

    /// The share is as before the request or after it, or as one of its halves; after a success it is as after it.
    fn check_picture(
        &mut self,
        daemon: &Daemon,
        kind: &Kind,
        answer: Option<&Answer<Gain>>,
        before: &Picture,
        event: Option<Event>,
    ) {
        let now = picture(&daemon.share()).unwrap();
        let host: Step<'_> = &|at| event.map_or(Ok(()), |event| change(at, kind.target, event));
        let request: Step<'_> = &|at| (kind.model)(at);
        let model = |steps: &[Step<'_>]| {
            let at = daemon.model();
            share::build(&at).unwrap();
            // What fails has done nothing.
            steps.iter().for_each(|step| _ = step(&at));
            picture(&at).unwrap()
        };
        let mut done = vec![model(&[request, host])];
        let mut undone = vec![model(&[host])];
        if event.is_some() {
            done.push(model(&[host, request]));
        } else {
            assert_eq!(undone[0], *before, "the model begins as the share does");
        }
        let is_done = done.contains(&now);
        match answer {
            Some(Ok(_)) if is_done => {}
            Some(Ok(_)) => self.wrong.push(format!("a success that did not happen: {}", difference(&now, &done[0]))),
            _ if undone.contains(&now) => {}
            _ if is_done => self.is_done_and_failed = answer.is_some(),
            _ => {
                let raced = if event.is_some() { kind.raced } else { &[] };
                undone.extend(kind.halves.iter().chain(raced).flat_map(|half| {
                    let half: Step<'_> = half;
                    [model(&[half, host]), model(&[host, half])]
                }));
                if !undone.contains(&now) {
                    self.wrong.push(format!("neither done nor undone: {}", difference(&now, &undone[0])));
                }
            }
        }
        let secret = fs::read(daemon.share().with_file_name("outside").join("secret"));
        if secret.ok().as_deref() != Some(SECRET) {
            self.wrong.push("a file outside of the share has changed".into());
        }
    }

    /// Nothing is held for a session that has ended: not by the daemon's word, nor by the host's.
    fn check_nothing_held(&mut self, daemon: &Daemon, inodes: &BTreeSet<u64>, descriptors: &[String]) {
        let (mut held, mut open) = (daemon.held(inodes), daemon.descriptors());
        let begun_at = Instant::now();
        // What is kept is kept for good.
        while (held != Held::NOTHING || open != descriptors || daemon.in_flight() != 0)
            && begun_at.elapsed() < SETTLES_WITHIN
        {
            thread::sleep(Duration::from_millis(5));
            (held, open) = (daemon.held(inodes), daemon.descriptors());
        }
        if held != Held::NOTHING {
            self.wrong.push(format!("{held:?} is held after the session"));
        }
        if open != descriptors {
            let more: Vec<_> = open.iter().filter(|link| !descriptors.contains(link)).collect();
            let count = (open.len(), descriptors.len());
            self.wrong.push(format!("{} descriptors after the session, {} before it: {more:?}", count.0, count.1));
        }
        if daemon.in_flight() != 0 {
            self.wrong.push(format!("{} requests in flight after the session", daemon.in_flight()));
        }
    }
}

/// What the host does to `target`, in the share or in a model of it.
fn change(share: &Path, target: &str, event: Event) -> io::Result<()> {
    let (path, away) = (share.join(target), share.join("away"));
    // A name that is about to be created may not be there yet.
    let is_there = path.symlink_metadata().is_ok();
    match event {
        Event::Renamed if is_there => fs::rename(path, away),
        Event::Removed if is_there => match path.symlink_metadata()?.is_dir() {
            true => fs::remove_dir_all(path),
            false => fs::remove_file(path),
        },
        Event::Replaced => {
            if is_there {
                fs::rename(&path, away)?;
            }
            // The same text in the share and in a model of it, and a way out of both.
            symlink(format!("{}outside/secret", "../".repeat(1 + target.matches('/').count())), path)
        }
        _ => Ok(()),
    }
}

/// Errors that mean the same to a guest.
fn is_translation(of: &[Errno], errno: Errno) -> bool {
    of.contains(&Errno::MFILE) && errno == Errno::NFILE
}

fn with_gain(held: Held, gain: Gain) -> Held {
    let add = |count: u64, gain: i64| count.checked_add_signed(gain).expect("no more is given back than is held");
    Held {
        inodes: add(held.inodes, gain.inodes),
        files: add(held.files, gain.files),
        lock_owners: add(held.lock_owners, gain.posix_locks),
        locks: add(held.locks, gain.posix_locks + gain.flocks),
        ..held
    }
}

fn is_wait_for_lock(call: &Call) -> bool {
    call.asked.number == libc::SYS_fcntl && call.asked.args[1] as i32 == libc::F_OFD_SETLKW
}

fn told(call: &Call) -> String {
    let name = calls::name(call.asked.number);
    match call.failed {
        Some(errno) => format!("{name} with {errno:?}"),
        None => name,
    }
}
