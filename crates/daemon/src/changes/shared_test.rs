//! Members that serve, that hang, that lie, and that are gone. The sources are real groups of fanotify, of the kind
//! that needs no privilege.

use std::{
    os::unix::{fs::PermissionsExt as _, net::UnixStream},
    sync::mpsc,
};

use rustix::{
    fs::{fcntl_getfl, fcntl_setfl},
    net::{bind, listen},
    process::{Resource, Rlimit, Uid, geteuid, getrlimit, setrlimit},
    thread::set_thread_res_uid,
};
use tempfile::TempDir;

use super::*;

/// For members that do not answer.
const SHORT: Limits = Limits { turn: Duration::from_millis(20), answers: Duration::from_millis(20) };
/// For what must succeed, however busy the machine is.
const PATIENT: Limits = Limits { turn: Duration::from_secs(120), answers: Duration::from_secs(600) };
const OTHER_USER: u32 = 12345;

struct Place {
    group: TempDir,
    share: TempDir,
}

impl Place {
    fn new() -> Self {
        let [group, share] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        Self { group, share }
    }

    fn at(&self, name: &str) -> std::path::PathBuf {
        self.group.path().join(name)
    }

    fn share(&self) -> fs::File {
        fs::File::open(self.share.path()).unwrap()
    }

    /// Returns a source that [`is_tagged`] finds.
    fn source(&self) -> OwnedFd {
        let source = Watch::open_directories(self.share()).unwrap().as_fd().try_clone_to_owned().unwrap();
        fcntl_setfl(&source, fcntl_getfl(&source).unwrap() | OFlags::APPEND).unwrap();
        source
    }

    fn greeting(&self) -> String {
        greeting(self.share()).unwrap()
    }

    /// A member of the group.
    fn member(&self) -> Giving {
        let listener = UnixListener::bind(self.at("observer.1.1")).unwrap();
        Sharing { listener, source: self.source(), greeting: self.greeting() }.start().unwrap()
    }

    /// Joins the group. Returns whether the source is a member's.
    fn joins(&self, limits: Limits) -> bool {
        // Not of the kind that is shared.
        let open = || Ok(Watch::open_held(&transom_watch::Options::default())?);
        let (watch, sharing) = join(self.group.path(), self.share(), limits, &mut Traces::default(), open).unwrap();
        let is_members = fcntl_getfl(&watch).unwrap().contains(OFlags::APPEND);
        assert_eq!(sharing.is_some(), is_members, "whoever got it passes it on");
        is_members
    }
}

#[test]
fn a_daemon_that_starts_gets_the_source_of_a_member_until_that_one_ends() {
    let place = Place::new();
    assert!(!place.joins(LIMITS), "nobody is there");
    let member = place.member();
    assert!(place.joins(PATIENT));
    // Whoever connects and reads nothing delays nobody, and neither does whoever has gone.
    let _silent = UnixStream::connect(place.at("observer.1.1")).unwrap();
    drop(UnixStream::connect(place.at("observer.1.1")).unwrap());
    assert!(place.joins(PATIENT));
    drop(member);
    assert!(!place.joins(LIMITS));
}

#[test]
fn the_sockets_of_dead_members_are_removed_and_nothing_else() {
    let place = Place::new();
    for name in ["observer.2.2", "observer.3.3", ".observer.4.4.4", "other"] {
        drop(UnixListener::bind(place.at(name)).unwrap());
    }
    fs::write(place.at("observer.note"), "precious").unwrap();
    let _member = place.member();
    assert!(place.joins(PATIENT));
    let mut names: Vec<_> = fs::read_dir(place.group.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["observer.1.1", "observer.note", "other"]);
}

#[test]
fn members_that_hang_are_waited_for_until_the_deadline() {
    let place = Place::new();
    let hung = |name: &str, backlog| {
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
        bind(&socket, &SocketAddrUnix::new(place.at(name)).unwrap()).unwrap();
        listen(&socket, backlog).unwrap();
        socket
    };
    // 1. One that accepts nobody, one for which too many wait, and one that starts and does not end.
    let (_one, _two) = (hung("observer.2.2", 100), hung("observer.3.3", 0));
    let _waiting = UnixStream::connect(place.at("observer.3.3")).unwrap();
    let _turn = take_turn(place.group.path(), SHORT.turn).unwrap();
    assert!(!place.joins(SHORT));
    // 2. One that has accepted, and is silent.
    let listener = UnixListener::bind(place.at("observer.4.4")).unwrap();
    let (send, accepted) = mpsc::channel();
    thread::spawn(move || listener.incoming().for_each(|stream| _ = send.send(stream)));
    assert!(!place.joins(SHORT));
    drop(accepted);
}

#[test]
fn a_member_that_dies_at_any_step_is_passed_over_and_leaves_nothing() {
    for step in 0..5 {
        let place = Place::new();
        let path = place.at("observer.2.2");
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
        bind(&socket, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        // 0. It does not listen yet.
        let mut listening = (step > 0).then(|| socket.try_clone().unwrap());
        drop(socket);
        let joined = thread::scope(|scope| {
            if let Some(socket) = listening.take() {
                listen(&socket, 1).unwrap();
                let (source, greeting) = (place.source(), place.greeting());
                scope.spawn(move || {
                    poll(&mut [PollFd::new(&socket, PollFlags::IN)], None).unwrap();
                    let listener = UnixListener::from(socket);
                    // 1. A daemon waits for it. 2. It has accepted. 3. The descriptor is missing. 4. All is said.
                    let stream = (step > 1).then(|| listener.accept().unwrap().0);
                    let sources = [source.as_fd()];
                    if let Some(stream) = stream.filter(|_| step > 2) {
                        let sources = if step > 3 { &sources[..] } else { &[] };
                        send_once(stream.as_fd(), greeting.as_bytes(), sources, SendFlags::NOSIGNAL).unwrap();
                    }
                });
            }
            place.joins(PATIENT)
        });
        assert_eq!(joined, step == 4, "step {step}");
        // The socket of the last one was not dead yet when it was asked.
        place.joins(PATIENT);
        assert!(!path.exists(), "step {step}");
    }
}

/// A member accepts nobody for want of descriptors, and answers later. In a process of its own, which has the limit.
#[test]
#[ignore = "a_member_that_was_out_of_descriptors_answers starts it"]
fn case_of_a_member_without_descriptors() {
    let place = Place::new();
    let _member = place.member();
    let [first, waiting] =
        [(); 2].map(|()| socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap());
    let before = getrlimit(Resource::Nofile);
    // No number is left, whatever is closed: the only one is in use, and poll(2) takes no more descriptors than that.
    setrlimit(Resource::Nofile, Rlimit { current: Some(1), ..before }).unwrap();
    // A member that waits for a connection has a number for it already: that is for the first one.
    for socket in [&first, &waiting] {
        connect(socket, &SocketAddrUnix::new(place.at("observer.1.1")).unwrap()).unwrap();
    }
    // The other one has been let in by the kernel, and not by the member.
    let ready = poll(&mut [PollFd::new(&waiting, PollFlags::IN)], Some(&ACCEPT_AGAIN_AFTER)).unwrap();
    assert_eq!(ready, 0);
    setrlimit(Resource::Nofile, before).unwrap();
    poll(&mut [PollFd::new(&waiting, PollFlags::IN)], None).unwrap();
    let mut greeting = [0; GREETING_MAX];
    let (len, descriptors) = receive_packet(waiting.as_fd(), &mut greeting).unwrap();
    assert_eq!((&greeting[..len], descriptors.len()), (place.greeting().as_bytes(), 1));
}

#[test]
fn a_member_that_was_out_of_descriptors_answers() {
    let (_, module) = module_path!().split_once("::").unwrap();
    let case = format!("{module}::case_of_a_member_without_descriptors");
    let output = process::Command::new(std::env::current_exe().unwrap()).args(["--ignored", "--exact", &case]).output();
    let output = output.unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
}

#[test]
fn whoever_sends_something_else_is_not_believed() {
    let place = Place::new();
    let other = Place::new();
    let null = OwnedFd::from(fs::File::open("/dev/null").unwrap());
    let [one, two] = [(); 2].map(|()| place.source());
    let long = "x".repeat(GREETING_MAX + 1);
    let answers: [(&str, Vec<&OwnedFd>); 7] = [
        (&place.greeting(), vec![&null]),
        (&place.greeting(), vec![&one, &two]),
        (&place.greeting(), vec![]),
        (&other.greeting(), vec![&one]),
        ("", vec![&one]),
        (&long, vec![&one]),
        // The counterpart.
        (&place.greeting(), vec![&one]),
    ];
    for (number, (greeting, sources)) in answers.iter().enumerate() {
        let path = place.at("observer.2.2");
        let listener = UnixListener::bind(&path).unwrap();
        let joined = thread::scope(|scope| {
            scope.spawn(|| {
                let (stream, _) = listener.accept().unwrap();
                let sources: Vec<_> = sources.iter().map(|source| source.as_fd()).collect();
                let _ = send_once(stream.as_fd(), greeting.as_bytes(), &sources, SendFlags::NOSIGNAL);
            });
            place.joins(PATIENT)
        });
        assert_eq!(joined, number == answers.len() - 1, "answer {number}");
        fs::remove_file(path).unwrap();
    }
}

/// Runs `act` in a thread that is another user.
fn as_another_user<T: Send>(act: impl FnOnce() -> T + Send) -> T {
    let act = || {
        let user = Uid::from_raw(OTHER_USER);
        // Only this thread.
        set_thread_res_uid(user, user, user).unwrap();
        act()
    };
    thread::scope(|scope| scope.spawn(act).join().unwrap())
}

#[test]
fn another_user_gets_nothing_and_is_not_believed() {
    if !geteuid().is_root() {
        println!("SKIPPED: only root can be another user");
        return;
    }
    // More than the directory of a group and a socket in it grant.
    let open_to_all = |path: &Path| fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap();
    let place = Place::new();
    open_to_all(place.group.path());
    let member = place.member();
    let path = place.at("observer.1.1");
    open_to_all(&path);
    let received = |path: &Path| {
        let stream = UnixStream::connect(path).unwrap();
        let (len, descriptors) = receive_packet(stream.as_fd(), &mut [0; GREETING_MAX]).unwrap();
        (len > 0, descriptors.len())
    };
    assert_eq!(as_another_user(|| received(&path)), (false, 0));
    assert_eq!(received(&path), (true, 1));
    drop(member);
    fs::remove_file(&path).unwrap();

    let listener = as_another_user(|| UnixListener::bind(&path).unwrap());
    let _foreign = Sharing { listener, source: place.source(), greeting: place.greeting() }.start().unwrap();
    assert!(!place.joins(LIMITS));
}
