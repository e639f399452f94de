use super::*;

fn settings(directories: Vec<PathBuf>, seed: u64) -> Settings {
    Settings {
        directories,
        seed,
        time: Duration::from_secs(3600),
        operations: 600,
        without: Vec::new(),
        unmapped: Vec::new(),
        limits: Limits { size_max: 5 << 20, len_max: 1 << 17 },
        is_verbose: false,
    }
}

#[test]
fn the_host_keeps_to_the_model_at_two_paths() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().to_owned();
    let summary = run(&settings(vec![path.clone(), path], 7)).unwrap();
    assert!(summary.done.values().sum::<u64>() > 400, "{summary}");
    assert_eq!(directory.path().read_dir().unwrap().count(), 0);
}

#[test]
fn what_is_left_out_is_not_done() {
    let directory = tempfile::tempdir().unwrap();
    let left_out = ["map", "direct", "write"].map(str::to_owned).into();
    let settings = Settings { without: left_out, unmapped: vec![0], ..settings(vec![directory.path().to_owned()], 8) };
    let summary = run(&settings).unwrap();
    assert!(["map", "direct", "write", "load"].iter().all(|name| !summary.done.contains_key(name)), "{summary}");
}

#[test]
fn another_file_in_its_place_is_a_mismatch() {
    let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let directories = vec![one.path().to_owned(), other.path().to_owned()];
    std::fs::write(other.path().join(format!("fsx-9-{}", std::process::id())), "").unwrap();
    let error = run(&settings(directories, 9)).unwrap_err().downcast::<Mismatch>().unwrap();
    assert!(error.to_string().contains("seed 9") && !error.last.is_empty(), "{error}");
}

#[test]
fn operations_have_the_names_that_can_be_left_out() {
    let (mut random, mut model) = (Random(1), model::Model::default());
    let limits = Limits { size_max: 1 << 20, len_max: 1 << 14 };
    let mut names: Vec<_> = (0..20_000).map(|_| choose(&mut random, &model, &limits, 2).name()).collect();
    model.truncate(1 << 19);
    names.extend((0..20_000).map(|_| choose(&mut random, &model, &limits, 2).name()));
    names.sort_unstable();
    names.dedup();
    let mut expected: Vec<_> = NAMES.into_iter().chain(["compare"]).collect();
    expected.sort_unstable();
    assert_eq!(names, expected);
}
