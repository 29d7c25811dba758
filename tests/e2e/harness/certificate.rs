//! Certificates, made by openssl.

use std::path::Path;
use std::process::Command;

use super::finish;

/// Writes `STEM.pem`, a certificate that signs itself for these names, `STEM.key`, and both of them
/// in `STEM.both`. `names` are as in a subject's alternative name: `DNS:a.example.com`.
pub fn certify(directory: &Path, stem: &str, names: &str) {
    let path = |end| directory.join(format!("{stem}.{end}")).to_str().unwrap().to_owned();
    let key = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2";
    finish(
        Command::new("openssl")
            .args(key.split(' '))
            .args(["-subj", &format!("/CN=pointsman {stem}")])
            .args(["-addext", &format!("subjectAltName={names}")])
            .args(["-keyout", &path("key"), "-out", &path("pem")]),
    )
    .success();
    let read = |end| std::fs::read(path(end)).unwrap();
    std::fs::write(path("both"), [read("pem"), read("key")].concat()).unwrap();
}

/// Writes an authority's certificate to `STEM-ca.pem`, and `STEM.pem` and `STEM.key` of a server
/// that it vouches for.
pub fn certify_by_authority(directory: &Path, stem: &str, names: &str) {
    let run = |arguments: &str, more: &[&str]| {
        let arguments = arguments.replace("STEM", stem);
        let mut openssl = Command::new("openssl");
        openssl.current_dir(directory).args(arguments.split(' ')).args(more);
        finish(&mut openssl).success();
    };
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
    let authority = format!("req -x509 {key} -days 2 -keyout STEM-ca.key -out STEM-ca.pem");
    run(&authority, &["-subj", &format!("/CN=pointsman {stem} authority")]);
    let request = format!("req {key} -keyout STEM.key -out STEM.csr");
    run(&request, &["-subj", &format!("/CN=pointsman {stem}")]);
    let extensions = format!("subjectAltName={names}\nbasicConstraints=CA:FALSE\n");
    std::fs::write(directory.join(format!("{stem}.ext")), extensions).unwrap();
    let sign = "x509 -req -in STEM.csr -CA STEM-ca.pem -CAkey STEM-ca.key -CAcreateserial -days 2";
    run(&format!("{sign} -extfile STEM.ext -out STEM.pem"), &[]);
}

/// The digest of a certificate's key: SHA-256 in base64.
pub fn key_digest(certificate: &Path) -> String {
    let script = "openssl x509 -pubkey -noout -in \"$0\" | openssl pkey -pubin -outform der \
                  | openssl dgst -sha256 -binary | openssl base64";
    let mut shell = Command::new("sh");
    finish(shell.args(["-c", script]).arg(certificate)).success().trim().to_owned()
}
