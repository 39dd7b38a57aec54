// Asks a server: node ask.js DESCRIPTOR_SET < [{address, service, method, request}, ...] > answers
const fs = require('fs');
const grpc = require('@grpc/grpc-js');
const loader = require('@grpc/proto-loader');

const descriptors = fs.readFileSync(process.argv[2]);
const options = {keepCase: true, longs: String, enums: String, bytes: String};
const loaded = grpc.loadPackageDefinition(
    loader.loadFileDescriptorSetFromBuffer(descriptors, options));

async function ask({address, service, method, request}) {
  const Client = loaded.tensorflow.serving[service];
  const client = new Client(address, grpc.credentials.createInsecure());
  const found = await new Promise((answer) =>
    client[method](request, {deadline: Date.now() + 30000}, (error, response) =>
      answer(error ? {code: grpc.status[error.code], details: error.details} : response)));
  client.close();
  return found;
}

Promise.all(JSON.parse(fs.readFileSync(0)).map(ask))
    .then((answers) => console.log(JSON.stringify(answers)));
