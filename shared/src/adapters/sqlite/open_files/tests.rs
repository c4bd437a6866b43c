use std::fs;
use std::os::unix::fs::symlink;

use tempfile::TempDir;

use super::*;

/// The files of a newly opened store in its own folder.
struct Fixture {
    files: OpenFiles,
    folder: PathBuf,
    parent: TempDir,
}

impl Fixture {
    fn new() -> Self {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("data");
        fs::create_dir(&folder).unwrap();
        for name in ["bank.db", "bank.db-wal", "bank.db-shm", "bank.db.lock"] {
            fs::write(folder.join(name), "12345678").unwrap();
        }
        let lock = folder.join("bank.db.lock");
        let id = FileId::at(&lock).unwrap();
        let files = OpenFiles::of(&folder.join("bank.db"), &["-wal", "-shm"], (&lock, id)).unwrap();
        Self { files, folder, parent }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }
}

#[test]
fn files_that_are_removed_replaced_or_shortened_are_lost_for_ever() {
    let removed = |name: &'static str| move |fixture: &Fixture| fs::remove_file(fixture.at(name)).unwrap();
    let replaced = |name: &'static str| {
        move |fixture: &Fixture| {
            fs::write(fixture.at("other"), "12345678").unwrap();
            fs::rename(fixture.at("other"), fixture.at(name)).unwrap();
        }
    };
    type Harm = Box<dyn Fn(&Fixture)>;
    let mut cases: Vec<(&str, Harm)> = Vec::new();
    for name in ["bank.db", "bank.db-wal", "bank.db-shm", "bank.db.lock"] {
        cases.push(("was removed or moved away", Box::new(removed(name))));
        cases.push(("another file was put in the place", Box::new(replaced(name))));
    }
    cases.push((
        "another program has overwritten",
        Box::new(|fixture| fs::write(fixture.at("bank.db"), "1234").unwrap()),
    ));
    cases.push((
        "was removed or moved away",
        Box::new(|fixture| fs::rename(&fixture.folder, fixture.parent.path().join("aside")).unwrap()),
    ));
    for (index, (words, harm)) in cases.iter().enumerate() {
        let fixture = Fixture::new();
        assert!(fixture.files.check().is_ok() && fixture.files.told().are_intact());
        harm(&fixture);
        assert!(fixture.files.known().is_ok(), "nobody has looked");
        let lost = fixture.files.check().unwrap_err();
        assert!(lost.to_string().contains(words) && lost.is_final(), "{index}: {lost}");
        assert!(fixture.files.known().is_err() && !fixture.files.told().are_intact(), "{index}");
    }
}

#[test]
fn a_file_that_is_moved_back_stays_lost() {
    let fixture = Fixture::new();
    fs::rename(fixture.at("bank.db"), fixture.at("aside")).unwrap();
    assert!(fixture.files.check().is_err());
    fs::rename(fixture.at("aside"), fixture.at("bank.db")).unwrap();
    assert!(fixture.files.check().is_err() && fixture.files.is_lost());
}

#[test]
fn files_that_cannot_be_looked_at_for_a_while_are_not_lost() {
    let fixture = Fixture::new();
    let aside = fixture.parent.path().join("aside");
    fs::rename(&fixture.folder, &aside).unwrap();
    symlink(&fixture.folder, &fixture.folder).unwrap();
    let unseen = fixture.files.check().unwrap_err();
    assert!(unseen.to_string().starts_with("it cannot be checked"), "{unseen}");
    assert!(!fixture.files.is_lost() && fixture.files.known().is_err() && !fixture.files.told().are_intact());
    fs::remove_file(&fixture.folder).unwrap();
    fs::rename(&aside, &fixture.folder).unwrap();
    assert!(
        fixture.files.check().is_ok() && fixture.files.known().is_ok() && fixture.files.told().are_intact()
    );
}

#[test]
fn a_link_that_names_another_file_is_noticed() {
    let fixture = Fixture::new();
    let (link, other) = (fixture.parent.path().join("link.db"), fixture.at("other.db"));
    symlink(fixture.at("bank.db"), &link).unwrap();
    let lock = fixture.at("bank.db.lock");
    let id = FileId::at(&lock).unwrap();
    let files = OpenFiles::of(&link, &["-wal", "-shm"], (&lock, id)).unwrap();
    fs::write(&other, "12345678").unwrap();
    fs::remove_file(&link).unwrap();
    symlink(&other, &link).unwrap();
    assert!(fixture.files.check().is_ok());
    assert!(matches!(files.check(), Err(FilesFault::Replaced { path }) if path == link));
}

/// Prints the cost of a check, which is part of every COMMIT, and asserts that it is far below the cost of a sync.
#[test]
fn a_check_takes_microseconds() {
    use crate::testing::prelude::*;
    const CHECKS: u32 = 20_000;
    let (fixture, world) = (Fixture::new(), SystemWorld::new());
    let began = world.uptime();
    for _ in 0..CHECKS {
        fixture.files.check().unwrap();
    }
    let each = world.uptime().saturating_sub(began).checked_div(CHECKS).unwrap();
    println!("{each:?} a check of four files");
    assert!(each < std::time::Duration::from_millis(1), "{each:?}");
}
