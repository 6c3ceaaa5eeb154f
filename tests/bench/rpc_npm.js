// The peer of rpc.py: npm's tchannel as an echo server, and as a client that measures or calls.
//
//   node rpc_npm.js server                            prints its port
//   node rpc_npm.js client HOST:PORT CALLERS SECONDS  prints {"rate": ..., "p50_us": ...}
//   node rpc_npm.js call HOST:PORT BODY CHECKSUM [SERVICE SHARD_KEY]  prints {"ok": ..., "body": ...}
'use strict';

const {createRequire} = require('module');
const TChannel = createRequire(process.env.TCHANNEL_HOME + '/')('tchannel');

const [mode, hostPort, ...rest] = process.argv.slice(2);
const headers = {as: 'raw', cn: 'bench'};
const service = rest[2] || 'bench';
if (rest[3]) headers.sk = rest[3];

function serve() {
    const channel = new TChannel();
    channel.makeSubChannel({serviceName: 'bench'}).register('/echo', (req, res, arg2, arg3) => {
        res.headers.as = 'raw';
        res.sendOk(arg2, arg3);
    });
    channel.listen(0, '127.0.0.1', () => console.log(channel.address().port));
}

function connect(checksumType, then) {
    const channel = new TChannel();
    const bench = channel.makeSubChannel({
        serviceName: service,
        peers: [hostPort],
        requestDefaults: {hasNoParent: true, headers, checksumType},
    });
    bench.waitForIdentified({host: hostPort}, (error) => {
        if (error) throw error;
        then((body, done) => bench.request({
            serviceName: service, timeout: 10000, checksumType,
        }).send('/echo', '', body, done), () => channel.close());
    });
}

function measure(callers, seconds) {
    connect(0, (send) => {
        const body = Buffer.alloc(64, 'x');
        const times = [];
        const warm = performance.now() + 500;
        const end = warm + seconds * 1000;
        let running = callers;
        function turn() {
            const began = performance.now();
            send(body, (error, res) => {
                if (error) throw error;
                if (!res.ok) throw new Error('not ok');
                const now = performance.now();
                if (began >= warm && now <= end) times.push(now - began);
                if (now < end) return turn();
                running -= 1;
                if (running === 0) {
                    times.sort((a, b) => a - b);
                    console.log(JSON.stringify({
                        rate: times.length / seconds,
                        p50_us: 1000 * times[times.length >> 1],
                    }));
                    process.exit(0);
                }
            });
        }
        for (let i = 0; i < callers; i++) turn();
    });
}

function callOnce(body, checksumType) {
    connect(checksumType, (send) => send(body, (error, res, arg2, arg3) => {
        console.log(JSON.stringify({
            ok: !error && res.ok, body: error ? String(error) : String(arg3),
        }));
        process.exit(0);
    }));
}

if (mode === 'server') serve();
else if (mode === 'client') measure(Number(rest[0]), Number(rest[1]));
else callOnce(rest[0], Number(rest[1]));
