//! Files that the host makes while a program here does: nobody gets what is not theirs, and nobody is told wrong.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io,
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _},
    path::Path,
    sync::{
        Barrier,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
};

use rustix::{
    fs::{IFlags, ioctl_getflags, ioctl_setflags},
    io::Errno,
    thread::{Gid, Uid, set_thread_groups, set_thread_res_gid, set_thread_res_uid},
};

use crate::{common, needs_mounts, start, unmount};

/// An ordinary user, by number.
const USER: u32 = 65_534;
/// How often a file is opened in a race.
const OPENS: usize = 2000;

/// Makes the calling thread, and no other, an ordinary user's.
fn become_ordinary() {
    let (uid, gid) = (Uid::from_raw(USER), Gid::from_raw(USER));
    set_thread_groups(&[]).unwrap();
    set_thread_res_gid(gid, gid, gid).unwrap();
    set_thread_res_uid(uid, uid, uid).unwrap();
}

fn open_to_create(path: &Path) -> io::Result<File> {
    File::options().read(true).write(true).create(true).truncate(true).mode(0o600).open(path)
}

/// Opens `at` again and again as an ordinary user while another thread, after `begin`, changes the share by
/// `meanwhile`; counts what comes of it: the owner of the file that was opened, or an error.
fn race(at: &Path, begin: fn(), mut meanwhile: impl FnMut() + Send) -> BTreeMap<Result<u32, i32>, usize> {
    let is_done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            begin();
            while !is_done.load(Relaxed) {
                meanwhile();
            }
        });
        let opener = scope.spawn(|| {
            become_ordinary();
            let mut outcomes = BTreeMap::new();
            for _ in 0..OPENS {
                let owner = open_to_create(at).and_then(|file| file.metadata()).map(|metadata| metadata.uid());
                *outcomes.entry(owner.map_err(|error| error.raw_os_error().unwrap())).or_insert(0) += 1;
                // Its own file would be there the next time.
                let _ = fs::remove_file(at);
            }
            outcomes
        });
        let outcomes = opener.join();
        is_done.store(true, Relaxed);
        outcomes.unwrap()
    })
}

/// CREATE carries no permission check of the kernel's: it took the name for absent.
#[test]
fn a_file_that_root_makes_on_the_host_meanwhile_is_not_opened_or_emptied() {
    needs_mounts!();
    let (dir, at) = (common::on_disk(), tempfile::tempdir().unwrap());
    // Root's files cannot be removed by others here.
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o1777)).unwrap();
    let mut program = common::transomd();
    // The kernel asks for the name each time.
    program.args.push("--cache=never".into());
    let mut mounted = start(&program, dir.path(), at.path());
    let (host, mut round) = (dir.path().join("file"), 0u32);
    let outcomes = race(
        &at.path().join("file"),
        || {},
        || {
            let Ok(file) = File::options().write(true).create_new(true).mode(0o600).open(&host) else { return };
            io::Write::write_all(&mut &file, b"secret").unwrap();
            // There, and then not there, for moments of different lengths: the other's requests come in between.
            round = round.wrapping_add(1);
            (0..round % 64 * 64).for_each(|_| std::hint::spin_loop());
            assert_eq!(file.metadata().unwrap().len(), 6, "it was emptied");
            fs::remove_file(&host).unwrap();
            (0..round % 61 * 64).for_each(|_| std::hint::spin_loop());
        },
    );
    println!("owners and errors: {outcomes:?}");
    assert_eq!(outcomes.get(&Ok(0)), None, "files of root's were opened");
    assert!(outcomes.contains_key(&Ok(USER)), "own files are made and opened");
    unmount(&mut mounted);
}

#[test]
fn a_file_that_its_owner_makes_and_removes_on_the_host_is_opened_or_made() {
    needs_mounts!();
    let (dir, at) = (common::on_disk(), tempfile::tempdir().unwrap());
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let mut program = common::transomd();
    program.args.push("--cache=never".into());
    let mut mounted = start(&program, dir.path(), at.path());
    let (host, mut round) = (dir.path().join("file"), 0u32);
    let outcomes = race(&at.path().join("file"), become_ordinary, || {
        round = round.wrapping_add(1);
        open_to_create(&host).unwrap();
        (0..round % 64 * 64).for_each(|_| std::hint::spin_loop());
        let _ = fs::remove_file(&host);
        (0..round % 61 * 64).for_each(|_| std::hint::spin_loop());
    });
    println!("owners and errors: {outcomes:?}");
    // Between a LOOKUP and its OPEN the file may go twice, which Linux tells with ESTALE.
    assert!(outcomes.keys().all(|outcome| matches!(*outcome, Ok(USER) | Err(libc::ESTALE))));
    assert!(outcomes.contains_key(&Ok(USER)));
    unmount(&mut mounted);
}

#[test]
fn who_makes_the_same_file_on_both_sides_has_it_open_on_both() {
    needs_mounts!();
    let (dir, at) = (common::on_disk(), tempfile::tempdir().unwrap());
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let mut mounted = start(&common::transomd(), dir.path(), at.path());
    let barrier = Barrier::new(2);
    let open_all = |dir: &Path| {
        become_ordinary();
        let open = |index: usize| {
            barrier.wait();
            open_to_create(&dir.join(index.to_string())).err()
        };
        (0..OPENS).filter_map(open).collect::<Vec<_>>()
    };
    let errors = thread::scope(|scope| {
        [dir.path(), at.path()].map(|side| scope.spawn(move || open_all(side))).map(|side| side.join().unwrap())
    });
    assert!(errors.iter().all(Vec::is_empty), "on the host and here: {errors:?}");
    unmount(&mut mounted);
}

/// Who the caller is reaches the daemon, which checks that it owns the file.
#[test]
fn an_ordinary_user_changes_the_inode_flags_of_its_own_files() {
    needs_mounts!();
    let (dir, at) = (common::on_disk(), tempfile::tempdir().unwrap());
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
    fs::write(dir.path().join("other"), "").unwrap();
    let mut mounted = start(&common::transomd(), dir.path(), at.path());
    let outcome = thread::scope(|scope| {
        let change = || {
            become_ordinary();
            let own = open_to_create(&at.path().join("own")).unwrap();
            let other = File::open(at.path().join("other")).unwrap();
            let change = |file: &File| ioctl_setflags(file, ioctl_getflags(file)? | IFlags::NODUMP);
            (change(&own), change(&other))
        };
        scope.spawn(change).join().unwrap()
    });
    match outcome {
        (Err(Errno::NOTTY | Errno::OPNOTSUPP), _) => println!("SKIPPED: no inode flags here"),
        outcome => assert_eq!(outcome, (Ok(()), Err(Errno::PERM))),
    }
    unmount(&mut mounted);
}

/// As generic/193 of xfstests: the host's own directory is the oracle.
#[test]
fn truncation_by_the_owner_clears_the_set_id_bits_that_it_clears_on_the_host() {
    needs_mounts!();
    for args in [&[][..], &["--killpriv-v2"]] {
        let (dir, at) = (common::on_disk(), tempfile::tempdir().unwrap());
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
        let mut program = common::transomd();
        program.args = args.iter().map(Into::into).collect();
        let mut mounted = start(&program, dir.path(), at.path());
        // The mode on the host after a file of an ordinary user, made there, was opened with O_TRUNC in `side`.
        let truncate = |side: &Path, name: &str, bits: u32| {
            become_ordinary();
            let path = dir.path().join(name);
            open_to_create(&path).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(bits)).unwrap();
            File::options().write(true).truncate(true).open(side.join(name)).unwrap();
            path.metadata().unwrap().mode() & 0o7777
        };
        for bits in [0o6644, 0o6744, 0o6654, 0o6754, 0o2644, 0o2654] {
            let truncate = |side| {
                thread::scope(|scope| {
                    scope.spawn(|| truncate(side, &format!("{bits:o}-{}", side == at.path()), bits)).join().unwrap()
                })
            };
            let (expected, mode) = (truncate(dir.path()), truncate(at.path()));
            assert_eq!(mode, expected, "{bits:o} becomes {mode:o} instead of {expected:o}, {args:?}");
        }
        unmount(&mut mounted);
    }
}
