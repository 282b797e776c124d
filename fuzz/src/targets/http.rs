//! Sends HTTP requests of arbitrary bytes, in parts over one connection.

use crate::scratch::directory;
use ampere_collector::serving::latest::Latest;
use ampere_endpoint::access::Access;
use ampere_server::http::{HEAD_LIMIT, Service, serve_connection};
use ampere_settings::Config;
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::rc::Rc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// A token that random bytes do not contain.
const TOKEN: &str = "f3b1c0de-5a5a-4c4c-9191-0123456789ab";

thread_local! {
    static RUNTIME: tokio::runtime::Runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    static ACCESS: [Access; 2] = {
        let path = directory("http").join("token");
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
        let _ = file.and_then(|mut file| file.write_all(TOKEN.as_bytes()));
        let mut with_token = Config::default();
        with_token.metrics.token_file = Some(path);
        [Config::default(), with_token].map(|config| Access::load(&config).expect("a token"))
    };
}

pub fn run(data: &[u8]) {
    let Some((head, request)) = data.split_first() else { return };
    let access = ACCESS.with(|access| access[usize::from(head & 1)].clone());
    let answer = RUNTIME.with(|runtime| runtime.block_on(converse(access, request, usize::from(head >> 1))));
    let text = String::from_utf8_lossy(&answer);
    if text.is_empty() {
        return;
    }
    let status =
        text.strip_prefix("HTTP/1.").and_then(|rest| rest.get(2..5)).unwrap_or_else(|| panic!("{text:?}"));
    assert!(
        ["200", "400", "401", "403", "404", "405", "408", "414", "431", "503"].contains(&status),
        "{text:?}"
    );
    // Without the token, only the empty page is served, which asks for the token.
    let is_empty_page = text.contains("<body data-token=\"wanted\">");
    assert!(head & 1 == 0 || status != "200" || is_empty_page || find(request, TOKEN.as_bytes()), "{text:?}");
    assert!(!text.contains(TOKEN));
    assert_eq!(text.matches("\r\nx-content-type-options: ").count().max(1), 1, "one answer a connection");
}

async fn converse(access: Access, request: &[u8], part: usize) -> Vec<u8> {
    let (mut client, server) = tokio::io::duplex(1 << 16);
    let (summaries, _) = crossbeam_channel::bounded(1);
    let service = Rc::new(Service::new(Latest::default(), summaries, access));
    let talk = async {
        for part in request.chunks(1 + part * 16) {
            if client.write_all(part).await.is_err() {
                break;
            }
            tokio::task::yield_now().await;
        }
        let _ = client.shutdown().await;
        let mut answer = Vec::new();
        let _ = client.read_to_end(&mut answer).await;
        answer
    };
    let ((), answer) = tokio::join!(serve_connection(server, None, service, HEAD_LIMIT), talk);
    answer
}

fn find(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}
