//! The fio runs: engines, patterns, numbers of jobs.

/// Each engine runs with each pattern and each number of jobs, as in the measurements that first compared DAX.
const ENGINES: [Engine; 3] = [Engine::Psync, Engine::Libaio, Engine::Mmap];
const PATTERNS: [&str; 4] = ["read", "randread", "write", "randwrite"];
const JOBS: [u32; 2] = [1, 4];

/// Bytes per operation.
pub(super) const BLOCK_LEN: u64 = 4096;
/// Operations in flight at once, for engines that support it.
const QUEUE_DEPTH: u32 = 16;

/// How fio does its operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Engine {
    /// pread(2) and pwrite(2).
    Psync,
    /// Linux's asynchronous I/O, which is asynchronous only with `O_DIRECT`.
    Libaio,
    /// Loads and stores in a shared mapping.
    Mmap,
}

/// One run of fio.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Job {
    /// The name, such as `psync randread x4`; also the name of fio's job.
    pub(super) name: String,
    engine: Engine,
    pattern: &'static str,
    jobs: u32,
}

/// Returns all runs.
pub(super) fn all() -> Vec<Job> {
    let mut all = Vec::new();
    for engine in ENGINES {
        for jobs in JOBS {
            for pattern in PATTERNS {
                all.push(Job { name: format!("{} {pattern} x{jobs}", engine.word()), engine, pattern, jobs });
            }
        }
    }
    all
}

/// Returns the names of as many files as the largest run has jobs.
pub(super) fn file_names() -> impl Iterator<Item = String> {
    let jobs = JOBS.into_iter().max().unwrap_or(1);
    (0..jobs).map(|job| format!("fio.{job}.0"))
}

impl Engine {
    fn word(self) -> &'static str {
        match self {
            Self::Psync => "psync",
            Self::Libaio => "libaio",
            Self::Mmap => "mmap",
        }
    }
}

/// Returns fio's job file for existing files of `file_len` bytes in `dir`. The groups run one after another.
pub(super) fn job_file(all: &[Job], dir: &str, file_len: u64, seconds: f64, warm_up: f64) -> String {
    let [runtime_ms, ramp_ms] = [seconds, warm_up].map(|seconds| (seconds * 1e3).round());
    let mut text = format!(
        "[global]\ndirectory={dir}\nfilename_format=fio.$jobnum.$filenum\nbs={BLOCK_LEN}\niodepth={QUEUE_DEPTH}\n\
         size={file_len}\nruntime={runtime_ms}ms\nramp_time={ramp_ms}ms\ntime_based\ngroup_reporting\nfallocate=none\n\
         randrepeat=1\nthread\n"
    );
    for Job { name, engine, pattern, jobs } in all {
        let direct = u8::from(*engine == Engine::Libaio);
        let engine = engine.word();
        text.push_str(&format!(
            "[{name}]\nstonewall\nioengine={engine}\nrw={pattern}\nnumjobs={jobs}\ndirect={direct}\n"
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_matrix_is_whole_and_its_names_are_unique() {
        let mut names: Vec<_> = all().into_iter().map(|job| job.name).collect();
        assert_eq!(names.len(), 24);
        names.sort();
        names.dedup();
        assert_eq!(names.len(), 24);
        let text = job_file(&all(), "/mnt", 4096, 0.5, 0.0);
        assert_eq!((text.matches("stonewall").count(), text.matches("runtime=500ms").count()), (24, 1));
        assert_eq!(file_names().collect::<Vec<_>>(), ["fio.0.0", "fio.1.0", "fio.2.0", "fio.3.0"]);
    }
}
