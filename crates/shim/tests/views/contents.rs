//! What is seen through a mapping of a view, on any file system.

use std::{
    fs::{self, File, OpenOptions},
    io,
    os::{fd::AsFd, unix::fs::FileExt, unix::fs::MetadataExt},
    path::Path,
    sync::{Barrier, atomic::AtomicU64, atomic::Ordering},
    thread,
};

use anyhow::{Context as _, Result, ensure};
use rustix::{
    fs::{FallocateFlags, fallocate, fstat, fsync, ftruncate},
    io::Errno,
};
use transom_shim::{Shim, VIEW_SIZE};

use crate::{PlaceCase, mapped::Mapped};

const RANGE: usize = 2 << 20;

/// The cases by their names. Each makes files of its own in the directory.
pub(crate) const CASES: &[PlaceCase] = &[
    ("small_file_in_a_whole_range_equals_the_file", small),
    ("file_with_an_odd_end_equals_the_file_in_every_range", odd_end),
    ("mapping_and_file_see_each_other_at_once", coherent),
    ("stores_behind_the_end_do_not_reach_the_file", behind_the_end),
    ("size_and_times_stay_as_they_are", untouched),
    ("growth_shows_in_a_mapping_that_exists", growth),
    ("empty_file_can_be_mapped_and_filled", empty),
    ("deleted_file_stays_mapped", deleted),
    ("size_is_the_same_whatever_the_file_does", constant_size),
    ("view_cannot_be_changed_or_opened_anew", refusals),
    ("views_of_one_file_share_its_pages", many_views),
    ("file_is_viewed_again_after_all_views_were_closed", reuse),
    ("threads_view_and_close_one_file_at_random", threads),
];

fn small(shim: &Shim, directory: &Path) -> Result<()> {
    equals(shim, directory, 19)
}

fn odd_end(shim: &Shim, directory: &Path) -> Result<()> {
    equals(shim, directory, (3 << 20) + 777)
}

fn equals(shim: &Shim, directory: &Path, len: usize) -> Result<()> {
    let file = file(directory, len)?;
    let view = shim.view(file.as_fd())?;
    let content = content(len);
    for offset in (0..len).step_by(RANGE) {
        let mapped = Mapped::new(&view, offset as u64, RANGE)?;
        let here = (len - offset).min(RANGE);
        ensure!(mapped.load(0, here)? == content[offset..offset + here], "the range at {offset}");
        let page_end = here.next_multiple_of(4096);
        ensure!(mapped.load(here, page_end - here)?.iter().all(|&byte| byte == 0), "zeros to the end of the page");
        if page_end < RANGE {
            ensure!(mapped.load(page_end, 1).is_err(), "no page behind the last");
        }
    }
    Ok(())
}

fn coherent(shim: &Shim, directory: &Path) -> Result<()> {
    let file = file(directory, RANGE + 777)?;
    let view = shim.view(file.as_fd())?;
    let mapped = Mapped::new(&view, 0, 2 * RANGE)?;
    for offset in [0, 1, 4095, 4096, RANGE - 1, RANGE, RANGE + 700] {
        file.write_all_at(b"host", offset as u64)?;
        ensure!(mapped.load(offset, 4)? == b"host", "a write of the host at {offset}");
        mapped.store(offset, b"here")?;
        let mut bytes = [0; 4];
        file.read_exact_at(&mut bytes, offset as u64)?;
        ensure!(&bytes == b"here", "a store at {offset}");
    }
    Ok(())
}

fn behind_the_end(shim: &Shim, directory: &Path) -> Result<()> {
    let path = directory.join("behind");
    let file = file_at(&path, 19)?;
    let view = shim.view(file.as_fd())?;
    let mapped = Mapped::new(&view, 0, RANGE)?;
    mapped.store(15, b"over the end")?;
    ensure!(file.metadata()?.len() == 19);
    ensure!(fs::read(&path)? == [&content(15), &b"over"[..]].concat());
    Ok(())
}

fn untouched(shim: &Shim, directory: &Path) -> Result<()> {
    let file = file(directory, 5000)?;
    file.sync_all()?;
    let facts = |file: &File| -> io::Result<_> {
        let stat = file.metadata()?;
        Ok((stat.len(), stat.mtime(), stat.mtime_nsec(), stat.ctime(), stat.ctime_nsec(), stat.blocks(), stat.mode()))
    };
    let before = facts(&file)?;
    let view = shim.view(file.as_fd())?;
    let mapped = Mapped::new(&view, 0, RANGE)?;
    mapped.load(0, 5000)?;
    fstat(&view)?;
    drop((mapped, view));
    ensure!(facts(&file)? == before, "{:?} was {before:?}", facts(&file)?);
    Ok(())
}

fn growth(shim: &Shim, directory: &Path) -> Result<()> {
    let file = file(directory, 19)?;
    let view = shim.view(file.as_fd())?;
    let mapped = Mapped::new(&view, 0, 2 * RANGE)?;
    ensure!(mapped.load(8192, 1).is_err(), "no page yet");
    for offset in [19, 4096 - 2, 8192, RANGE + 5] {
        file.write_all_at(b"grown", offset as u64)?;
        ensure!(mapped.load(offset, 5)? == b"grown", "what was appended at {offset}");
    }
    file.set_len(10)?;
    ensure!(mapped.load(8192, 1).is_err(), "no page any more");
    file.write_all_at(b"again", 8192)?;
    ensure!(mapped.load(8192, 5)? == b"again" && mapped.load(10, 100)? == [0; 100]);
    Ok(())
}

fn empty(shim: &Shim, directory: &Path) -> Result<()> {
    let file = file(directory, 0)?;
    let view = shim.view(file.as_fd())?;
    let mapped = Mapped::new(&view, 0, RANGE)?;
    ensure!(mapped.load(0, 1).is_err() && file.metadata()?.len() == 0);
    file.write_all_at(b"filled", 0)?;
    ensure!(mapped.load(0, 6)? == b"filled");
    Ok(())
}

fn deleted(shim: &Shim, directory: &Path) -> Result<()> {
    let path = directory.join("deleted");
    let file = file_at(&path, 5000)?;
    fs::remove_file(&path)?;
    let view = shim.view(file.as_fd())?;
    let mapped = Mapped::new(&view, 0, RANGE)?;
    drop((file, view));
    ensure!(mapped.load(0, 5000)? == content(5000));
    Ok(())
}

fn constant_size(shim: &Shim, directory: &Path) -> Result<()> {
    let file = file(directory, 0)?;
    let view = shim.view(file.as_fd())?;
    let size = || fstat(&view).map(|stat| stat.st_size.cast_unsigned());
    ensure!(size()? == VIEW_SIZE);
    file.write_all_at(b"grown", 1 << 20)?;
    ensure!(size()? == VIEW_SIZE);
    ensure!(rustix::fs::seek(&view, rustix::fs::SeekFrom::End(0))? == VIEW_SIZE);
    rustix::fs::fstatfs(&view)?;
    Ok(())
}

fn refusals(shim: &Shim, directory: &Path) -> Result<()> {
    let file = file(directory, 5000)?;
    let view = shim.view(file.as_fd())?;
    ensure!(ftruncate(&view, 0) == Err(Errno::PERM), "truncation");
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    ensure!(fallocate(&view, punch, 0, 4096) == Err(Errno::OPNOTSUPP), "a hole");
    ensure!(fallocate(&view, FallocateFlags::empty(), 0, 1 << 20) == Err(Errno::OPNOTSUPP), "room");
    ensure!(fsync(&view) == Err(Errno::INVAL), "a flush that would not reach the file");
    let name = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&view));
    for options in [OpenOptions::new().read(true), OpenOptions::new().read(true).write(true)] {
        ensure!(options.open(&name).is_err_and(|error| error.raw_os_error() == Some(libc::EPERM)), "open anew");
    }
    ensure!(fs::metadata(&name)?.len() == VIEW_SIZE && file.metadata()?.len() == 5000);
    Ok(())
}

fn many_views(shim: &Shim, directory: &Path) -> Result<()> {
    let files = (0..20).map(|_| file(directory, 5000)).collect::<io::Result<Vec<_>>>()?;
    let mut views = Vec::new();
    for round in 0..20 {
        for (index, file) in files.iter().enumerate() {
            let view = shim.view(file.as_fd()).with_context(|| format!("view {round} of file {index}"))?;
            views.push((index, Mapped::new(&view, 0, RANGE)?, view));
        }
    }
    for (index, file) in files.iter().enumerate() {
        file.write_all_at(&[index as u8; 100], 4000)?;
    }
    for (index, mapped, _) in &views {
        ensure!(mapped.load(4000, 100)? == [*index as u8; 100], "file {index}");
    }
    Ok(())
}

fn reuse(shim: &Shim, directory: &Path) -> Result<()> {
    let file = file(directory, 5000)?;
    for round in 0..500_u32 {
        let view = shim.view(file.as_fd()).with_context(|| format!("round {round}"))?;
        let mapped = Mapped::new(&view, 0, RANGE)?;
        drop(view);
        file.write_all_at(&round.to_ne_bytes(), 100)?;
        ensure!(mapped.load(100, 4)? == round.to_ne_bytes(), "round {round}");
    }
    Ok(())
}

fn threads(shim: &Shim, directory: &Path) -> Result<()> {
    const THREADS: u64 = 4;
    let file = file(directory, 5000)?;
    let (barrier, written) = (Barrier::new(THREADS as usize), AtomicU64::new(0));
    let work = |thread: u64| -> Result<()> {
        barrier.wait();
        for round in 0..300_u64 {
            let view = shim.view(file.as_fd())?;
            let mapped = Mapped::new(&view, 0, RANGE)?;
            if (round * 7 + thread).is_multiple_of(3) {
                drop(view);
            }
            mapped.store(8 * thread as usize, &round.to_ne_bytes())?;
            let mut bytes = [0; 8];
            file.read_exact_at(&mut bytes, 8 * thread)?;
            ensure!(bytes == round.to_ne_bytes(), "round {round} of thread {thread}");
            written.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    };
    thread::scope(|scope| {
        let all: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || work(thread))).collect();
        all.into_iter().try_for_each(|one| one.join().unwrap())
    })?;
    ensure!(written.load(Ordering::Relaxed) == THREADS * 300);
    Ok(())
}

/// A file without a name.
fn file(directory: &Path, len: usize) -> io::Result<File> {
    let file = tempfile::tempfile_in(directory)?;
    file.write_all_at(&content(len), 0)?;
    Ok(file)
}

fn file_at(path: &Path, len: usize) -> io::Result<File> {
    let file = OpenOptions::new().read(true).write(true).create_new(true).open(path)?;
    file.write_all_at(&content(len), 0)?;
    Ok(file)
}

/// Bytes of which each says where it is.
fn content(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at % 251) as u8 ^ (at >> 12) as u8).collect()
}
