//! The same work with increasing numbers of jobs, and over increasing numbers of files.

use std::io;

use super::{
    aligned::{AlignedBuffer, PAGE_BYTES},
    blocks::fill,
    place::{How, Storage},
    stage::Stage,
};

/// Number of workloads for each number of jobs.
pub(super) const COUNT_PER_JOBS: usize = 3;

/// Runs a fixed number of operations in all, divided among each number of jobs.
pub(super) fn jobs(stage: &mut Stage<'_>, word: &str) -> io::Result<()> {
    let top = stage.path("jobs");
    stage.place().create_dir_all(&top)?;
    let path = format!("{top}/data");
    let len_bytes = u64::from(stage.params.blocks_mib) << 20;
    fill(stage.place(), &path, len_bytes)?;
    let ops = u64::from(stage.params.block_ops);
    for jobs in stage.params.jobs.clone() {
        let each = (ops / u64::from(jobs)).max(1);
        for (name, how) in [("read_4k_rand_direct", How::READ), ("write_4k_rand_direct", How::WRITE)] {
            let prepare = |_: &dyn Storage, job: u16| {
                let mut random = fastrand::Rng::with_seed(job.into());
                let blocks = len_bytes / PAGE_BYTES as u64;
                let offsets: Vec<u64> = (0..each).map(|_| random.u64(..blocks) * PAGE_BYTES as u64).collect();
                Ok((offsets, AlignedBuffer::new(PAGE_BYTES, 0x3c)))
            };
            stage.measure_jobs(
                &format!("{name}, {jobs} {word}"),
                jobs,
                prepare,
                |place, (offsets, buffer), laps| {
                    let file = place.open(&path, how.direct(true))?;
                    for &offset in offsets.iter() {
                        match how.is_write {
                            true => file.write_all_at(buffer.bytes(), offset)?,
                            false => file.read_exact_at(buffer.bytes_mut(), offset)?,
                        }
                        laps.lap(PAGE_BYTES);
                    }
                    Ok(())
                },
            )?;
        }
        let prepare = |_: &dyn Storage, job: u16| Ok(format!("{top}/made{job}"));
        stage.measure_jobs(&format!("create_unlink, {jobs} {word}"), jobs, prepare, |place, path, laps| {
            for _ in 0..each.div_ceil(4) {
                drop(place.open(path, How::CREATE)?);
                place.remove_file(path)?;
                laps.lap(0);
            }
            Ok(())
        })?;
    }
    stage.place().remove_dir_all(&top)
}

/// Number of files in one of many directories.
const FILES_PER_DIR: u32 = 500;

/// Returns the path of file `number` in the large set, below `top`.
pub fn file_among_many(top: &str, number: u32) -> String {
    format!("{top}/d{:04}/f{number:07}", number / FILES_PER_DIR)
}

/// Gets attributes of random files from increasingly large sets. All files exist already.
pub(super) fn breadth(stage: &mut Stage<'_>) -> io::Result<()> {
    let ops = stage.params.block_ops;
    for (stream, files) in (10..).zip(stage.params.breadth.clone()) {
        let mut random = stage.random(stream);
        let paths: Vec<_> = (0..ops).map(|_| file_among_many(MANY, random.u32(..files))).collect();
        stage.measure_cold(&format!("stat_rand, {files} files"), |place, laps| {
            for path in &paths {
                place.stat(path)?;
                laps.lap(0);
            }
            Ok(())
        })?;
    }
    Ok(())
}

/// The directory of the files of [`breadth`], in the share.
pub const MANY: &str = "many";
