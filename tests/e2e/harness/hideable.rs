//! A backend that comes and goes at an address that stays.

use std::fs;
use std::path::PathBuf;

use super::pointsman::fresh_directory;
use super::{Backend, Stream};

/// Echoes on a unix socket, whose file can be moved out of the way: connections are refused then.
#[derive(Debug)]
pub struct Hideable {
    directory: PathBuf,
    backend: Backend,
}

impl Hideable {
    /// One that can be connected to.
    pub fn shown() -> Self {
        Self::serving(|mut stream| {
            let bytes = stream.read_to_end();
            stream.write(&bytes);
        })
    }

    /// One that serves connections like this.
    pub fn serving(serve: impl Fn(Stream) + Send + Sync + 'static) -> Self {
        let directory = fresh_directory();
        let mut backend = Backend::listening(&address(&directory));
        backend.serve(serve);
        Hideable { directory, backend }
    }

    /// One that cannot be connected to yet.
    pub fn hidden() -> Self {
        let hideable = Self::shown();
        hideable.hide();
        hideable
    }

    /// As the configuration names it.
    pub fn address(&self) -> String {
        address(&self.directory)
    }

    /// Connections are refused from now on.
    pub fn hide(&self) {
        fs::rename(self.directory.join("socket"), self.directory.join("hidden")).unwrap();
    }

    /// Connections are taken again.
    pub fn show(&self) {
        fs::rename(self.directory.join("hidden"), self.directory.join("socket")).unwrap();
    }

    /// What is behind the file.
    pub fn backend(&self) -> &Backend {
        &self.backend
    }
}

impl Drop for Hideable {
    fn drop(&mut self) {
        let _kept = fs::remove_dir_all(&self.directory);
    }
}

fn address(directory: &std::path::Path) -> String {
    format!("unix:{}/socket", directory.display())
}
