# usage: client.rb SOCKET QUEUE TEXTS.json — enqueues each text twice (json and f32), waits, prints two lines of hex floats.
require "json"
require "redis"

connection = Redis.new(path: ARGV[0])
prefix = "sluice:{#{ARGV[1]}}:"
JSON.parse(File.read(ARGV[2], encoding: "UTF-8")).each do |text|
  %w[json f32].each do |encoding|
    id = connection.xadd("#{prefix}requests", { text: text, encoding: encoding, notify: 1 })
    connection.blpop("#{prefix}wake:#{id}", timeout: 30) or abort "no wake token"
    reply = connection.hgetall("#{prefix}reply:#{id}")
    reply["status"] == "done" or abort reply.inspect
    floats = encoding == "json" ? JSON.parse(reply["embedding"]) : reply["embedding"].unpack("e*")
    floats.length == JSON.parse(reply["info"])["dim"] or abort "wrong length"
    puts floats.pack("e*").unpack1("H*")
  end
end
