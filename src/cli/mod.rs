//! The command line.

/// Runs the program.
pub fn main() -> std::process::ExitCode {
    let path = std::path::PathBuf::from(std::env::args().nth(3).unwrap_or_default());
    let config = match crate::config::load(&path) {
        Ok(config) => config,
        Err(errors) => {
            eprintln!("{errors}");
            return std::process::ExitCode::FAILURE;
        }
    };
    let log = crate::observe::log::init(config.log).ok();
    match crate::service::Service::start(config, Some(path), log) {
        Ok(service) => service.wait(),
        Err(error) => {
            eprintln!("{error}");
            return std::process::ExitCode::FAILURE;
        }
    }
    std::process::ExitCode::SUCCESS
}
